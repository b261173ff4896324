"""A model as C, built for its microcontroller and run in QEMU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array, TensorType
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build, write_files
from modelcc.targets.mcu.emulation.program import board_files
from modelcc.targets.mcu.emulation.run import BoardRun, run


def check_tools(model: EmbeddedModel) -> None:
    """:class:`ModelError` if there is no emulator or compiler for the processor."""
    if missing := missing_tools(model.machine):
        raise ModelError(f"cannot run anything on a {model.machine.name}: {missing}", ())


def run_on_board(model: EmbeddedModel, feeds: Mapping[str, Array], optimize: str) -> BoardRun:
    """One run, with the user's names of inputs."""
    check_tools(model)
    given = {t.field: feeds[t.name].tobytes() for t in model.facts.inputs}
    with tempfile.TemporaryDirectory() as name:
        write_files(board_files(model), Path(name))
        return run(build(Path(name), model.name, model.machine, optimize), given, True)


def input_types(model: EmbeddedModel) -> dict[str, TensorType]:
    """Input types by the user's names."""
    return {tensor.name: tensor.type for tensor in model.facts.inputs}


def any_inputs(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """Random inputs: all values of 8-bit types, small ones of wider integers, standard normal
    floats."""
    generator = np.random.default_rng(seed)
    return {name: _any(type_, generator) for name, type_ in types.items()}


def _any(type_: TensorType, generator: np.random.Generator) -> Array:
    dtype, shape = np.dtype(type_.dtype.numpy), tuple(int(str(extent)) for extent in type_.shape)
    if type_.dtype.is_float:
        return generator.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype) if dtype.kind in "iu" and dtype.itemsize == 1 else None
    low, high = (info.min, info.max + 1) if info else (0, 2)
    return generator.integers(low, high, shape).astype(dtype)


def outputs_of(model: EmbeddedModel, found: Mapping[str, bytes]) -> dict[str, Array]:
    """Outputs by the user's names."""
    return {
        tensor.name: np.frombuffer(found[tensor.field], tensor.type.dtype.numpy)
        for tensor in model.facts.outputs
    }
