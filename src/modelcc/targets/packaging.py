"""From a program and its object files to an artifact, the input of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.artifact.constants import constant_view, fill_block, padded_size
from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import (
    CheckSpec,
    DimSpec,
    LibrarySpec,
    MachineSpec,
    Manifest,
    TensorSpec,
)
from modelcc.artifact.memory import Memory
from modelcc.ir.errors import ModelError
from modelcc.ir.index import DIM, Range
from modelcc.ir.program import Program, SizeCheck, checks, index_bounds


@dataclass(frozen=True)
class Label:
    """Provenance of an artifact: hash of options, versions of tools, sources by path."""

    options: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    sources: Mapping[str, str] = field(default_factory=dict[str, str])


def package(
    program: Program,
    entry: str,
    objects: Sequence[bytes],
    machine: MachineSpec,
    outputs: Sequence[str] = (),
    label: Label = Label(),
    allocate: Callable[[int], Memory] = Memory,
    libraries: Sequence[LibrarySpec] = (),
) -> Artifact:
    """The artifact of ``program``, whose compiled ``objects`` define ``entry``.

    ``outputs`` are the user's names, if they differ from the program's.  ``allocate`` returns
    memory of at least that many bytes for constants; ``libraries`` are those it calls.  Raises
    ModelError for a dimension whose size follows from no input.
    """
    _check_dimensions(program)
    names = outputs or program.outputs
    dynamic = frozenset(program.read_sizes)
    block = allocate(padded_size(program.constants.values()))
    table = fill_block(block, program.constants)
    constants = {spec.name: constant_view(block.view.toreadonly(), spec) for spec in table}
    files = {f"{number:04}.o": data for number, data in enumerate(objects)}
    manifest = Manifest(
        name=program.name,
        entry=entry,
        inputs=tuple(_spec(program, name, name) for name in program.inputs),
        outputs=tuple(
            _spec(program, bound, name) for bound, name in zip(program.outputs, names, strict=True)
        ),
        machine=machine,
        dims=tuple(_dim(n, r) for n, r in program.dims.items() if n not in dynamic),
        definitions=tuple((d.symbol, d.value) for d in program.placed.definitions),
        arena=program.placed.arena,
        constants=table,
        objects=tuple(files),
        sizes=program.read_sizes,
        checks=tuple(_check(check) for check in checks(program)),
        allocated=_allocated(program, names),
        indices=tuple(replace(bound, number=0) for bound in index_bounds(program)),
        libraries=tuple(libraries),
        options=label.options,
        versions=label.versions,
        aliases=_aliases(program, names),
    )
    return Artifact(manifest, files, constants, label.sources, block)


def _spec(program: Program, bound: str, name: str) -> TensorSpec:
    found = program.types[bound]
    return TensorSpec(name, found.dtype, found.shape)


def _check(check: SizeCheck) -> CheckSpec:
    return CheckSpec(", ".join(check.step.source), check.condition)


def check_text(check: SizeCheck) -> str:
    """The asserted condition, prefixed by the user's nodes that assert it."""
    where = f"{', '.join(check.step.source)}: " if check.step.source else ""
    return f"{where}{check.condition}"


def _allocated(program: Program, names: Sequence[str]) -> tuple[str, ...]:
    """Names of allocated tensors; outputs by the user's names."""
    users = dict(zip(program.outputs, names, strict=True))
    return tuple(users.get(name, name) for name in program.allocated)


def _aliases(program: Program, names: Sequence[str]) -> dict[str, str]:
    """State inputs that outputs overwrite, by the user's names of the outputs."""
    users = zip(program.outputs, names, strict=True)
    return {name: program.states[bound] for bound, name in users if bound in program.states}


def _dim(name: str, known: Range) -> DimSpec:
    low = known.lo if isinstance(known.lo, int) else DIM.lo
    high = known.hi if isinstance(known.hi, int) else None
    return DimSpec(name, low if isinstance(low, int) else 1, high)


def _check_dimensions(program: Program) -> None:
    extents = [dim for name in program.inputs for dim in program.types[name].shape]
    given = {name for dim in extents if not isinstance(dim, int) for name in dim.symbols}
    given |= set(program.read_sizes)
    for name in program.dims:
        if name not in given:
            raise ModelError(
                f"no input tells the size of dimension {name!r}",
                (),
                f"fix it when compiling, for example {name}=1",
            )
