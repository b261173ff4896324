"""Models on a microcontroller in QEMU: are results right, byte by byte; instructions, flash, RAM.

::

    python -m benchmarks.mcu model.tflite other.onnx --target cortex-m4
    python -m benchmarks.mcu model.tflite --strategy bytecode

The reference is LiteRT with its reference kernels for .tflite, onnxruntime for .onnx.  Instructions
are counted by a plugin of QEMU's, for which the system's C compiler is needed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from modelcc.driver import target_of
from modelcc.emit.delivery import planned
from modelcc.ir.types import Array
from modelcc.options import KERNELS, Options, dimension, library
from modelcc.sizes import bytes_of
from modelcc.targets.base import BuildConfig
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.model import EmbeddedModel, embedded_model
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build, write_files
from modelcc.targets.mcu.emulation.program import board_files
from modelcc.targets.mcu.emulation.run import BoardRun, run
from modelcc.targets.mcu.machine import MODELS
from modelcc.targets.mcu.target import McuTarget
from modelcc.targets.vm.board import bytecode_board_files
from modelcc.targets.vm.encode import encode

NAME = "net"
Dims = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Row:
    """A model's run: measurements, and the number of differing output elements."""

    model: str
    measured: BoardRun
    elements: int
    differing: int
    greatest: float

    def facts(self) -> dict[str, object]:
        """As JSON data."""
        m = self.measured
        return {
            "model": self.model, "instructions": m.total, "flash": m.flash, "ram": m.ram,
            "variables": m.variables, "stack": m.stack, "elements": self.elements,
            "differing": self.differing, "greatest": self.greatest, "functions": m.instructions,
        }  # fmt: skip


def measure(path: Path, target: McuTarget, dims: Dims, seed: int, strategy: str = "c") -> Row:
    """Compile a model, build it for the target's processor, run it on random inputs.

    ``strategy``: its C; bytecode in its interpreter; or the interpreter opening the file."""
    options = Options(target=target.name, threads=1, dims=dims)
    request = DeliveryRequest(NAME, "array", path.name)
    program, request = planned(path, None, request, target, options, BuildConfig())
    model = embedded_model(program, request, target.model)
    feeds, wanted = reference(path, dict(dims), np.random.default_rng(seed))
    fields = [tensor.field for tensor in model.facts.inputs]
    given = {f: array.tobytes() for f, array in zip(fields, feeds, strict=True)}
    with tempfile.TemporaryDirectory() as name:
        write_files(_files(model, strategy), Path(name))
        measured = run(build(Path(name), NAME, target.model), given, True)
    made = [measured.outputs[tensor.field] for tensor in model.facts.outputs]
    return _compared(path.name, measured, made, wanted)


def _files(model: EmbeddedModel, strategy: str) -> tuple[File, ...]:
    if strategy == "c":
        return board_files(model)
    return bytecode_board_files(model, encode(model), "open" if strategy == "open" else "run")


def _compared(name: str, measured: BoardRun, got: Sequence[bytes], wanted: list[Array]) -> Row:
    count = differing = 0
    greatest = 0.0
    for data, want in zip(got, wanted, strict=True):
        found = np.frombuffer(data, want.dtype).reshape(want.shape)
        count += want.size
        differing += int((found != want).sum())
        apart = np.abs(found.astype(np.float64) - want.astype(np.float64))
        greatest = max(greatest, float(apart.max(initial=0)))
    return Row(name, measured, count, differing, greatest)


def reference(
    path: Path, dims: Mapping[str, Any], rng: np.random.Generator
) -> tuple[list[Array], list[Array]]:
    """Random inputs, and the outputs of the format's own engine, in the model's order."""
    return (_litert if path.suffix == ".tflite" else _onnxruntime)(path, dims, rng)


def _litert(
    path: Path, dims: Mapping[str, Any], rng: np.random.Generator
) -> tuple[list[Array], list[Array]]:
    module: Any = import_module("ai_edge_litert.interpreter")
    kernels = module.OpResolverType.BUILTIN_REF
    engine = module.Interpreter(str(path), experimental_op_resolver_type=kernels)
    engine.allocate_tensors()
    feeds = [random_array(d["shape"], d["dtype"], rng) for d in engine.get_input_details()]
    for detail, feed in zip(engine.get_input_details(), feeds, strict=True):
        engine.set_tensor(detail["index"], feed)
    engine.invoke()
    return feeds, [engine.get_tensor(d["index"]) for d in engine.get_output_details()]


def _onnxruntime(
    path: Path, dims: Mapping[str, Any], rng: np.random.Generator
) -> tuple[list[Array], list[Array]]:
    module: Any = import_module("onnxruntime")
    session = module.InferenceSession(str(path))
    feeds: dict[str, Array] = {}
    for given in session.get_inputs():
        shape = [d if isinstance(d, int) else dims[d] for d in given.shape]
        kind = given.type.removeprefix("tensor(").removesuffix(")")
        feeds[given.name] = random_array(shape, np.dtype(_KINDS.get(kind, kind)), rng)
    return list(feeds.values()), [np.asarray(y) for y in session.run(None, feeds)]


_KINDS = {"float": "float32", "double": "float64"}


def random_array(shape: Sequence[int], kind: Any, rng: np.random.Generator) -> Array:
    """All values for 8-bit integers, small numbers for wider ones, standard normal floats."""
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def show(rows: Sequence[Row], functions: int) -> None:
    """A table, followed by the functions with most instructions."""
    table = Table("model", "instructions", "flash", "RAM", "stack", "differs")
    for row in rows:
        m = row.measured
        wrong = f"{row.differing} of {row.elements}, by {row.greatest:g}" if row.differing else "no"
        counted = f"{m.total:,}" if m.instructions else "not counted"
        table.add_row(row.model, counted, f"{m.flash:,}", f"{m.ram:,}", str(m.stack), wrong)
    console = Console()
    console.print(table)
    for row in rows:
        for name, count in list(row.measured.instructions.items())[:functions]:
            console.print(f"{row.model}: {count:>12,} {name}", highlight=False)


def main() -> int:
    """1 if a result differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcu", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="cortex-m4", choices=list(MODELS))
    parser.add_argument("--strategy", default="c", choices=["c", "bytecode", "open"])
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--ram", type=bytes_of, metavar="SIZE", help="stream rows to fit into it")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--kernels", choices=KERNELS)
    parser.add_argument("--functions", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    dims = tuple(dimension(text) for text in asked.dim)
    libraries = tuple(library(text) for text in asked.library)
    options = Options(target=asked.target, threads=1, ram=asked.ram, libraries=libraries)
    target = target_of(replace(options, kernels=asked.kernels))
    assert isinstance(target, McuTarget)
    missing = missing_tools(target.model)
    if missing:
        parser.error(missing)
    rows = [measure(p, target, dims, asked.seed, asked.strategy) for p in asked.models]
    show(rows, asked.functions)
    if asked.json:
        asked.json.write_text(json.dumps([row.facts() for row in rows], indent=1))
    return int(any(row.differing for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
