"""From a program and its object files to an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelcc.artifact.constants import constant_table
from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import DimSpec, MachineSpec, Manifest, TensorSpec
from modelcc.ir.program import Program
from modelcc.targets.llvm.program import entry_name
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import llvm_version

_RENAMED = ".output"
"""What program lowering appends to an output's name that an input or constant has, too."""


def package_program(
    program: Program, objects: Sequence[bytes], machine: Machine, notes: Mapping[str, str]
) -> Artifact:
    """The artifact of ``program``, whose modules were compiled to ``objects``, in order."""
    constants = {name: constant.data for name, constant in program.constants.items()}
    named = {f"part{number}.o": contents for number, contents in enumerate(objects)}
    manifest = Manifest(
        name=program.name,
        entry=entry_name(program),
        inputs=tuple(_spec(program, name, name) for name in program.inputs),
        outputs=tuple(_spec(program, n, user_output_name(program, n)) for n in program.outputs),
        machine=MachineSpec(machine.triple, machine.cpu, machine.features),
        dims=tuple(_dim(program, name) for name in program.dims),
        definitions=tuple((d.symbol, d.value) for d in program.definitions),
        arena=program.arena,
        constants=constant_table(constants),
        objects=tuple(named),
        versions={"llvm": llvm_version()},
    )
    return Artifact(manifest, named, constants, notes)


def user_output_name(program: Program, name: str) -> str:
    """The user's name of an output that is bound under another one."""
    taken = {*program.inputs, *program.constants, *program.outputs}
    while name.endswith(_RENAMED) and name.removesuffix(_RENAMED) in taken:
        name = name.removesuffix(_RENAMED)
    return name


def _spec(program: Program, name: str, users: str) -> TensorSpec:
    type = program.bindings[name].type
    return TensorSpec(users, type.dtype, type.shape)


def _dim(program: Program, name: str) -> DimSpec:
    low, high = program.dims[name].lo, program.dims[name].hi
    least = low if isinstance(low, int) else 1
    return DimSpec(name, least, high if isinstance(high, int) else None)
