"""Whole models: small portable files, rebuilt on the GPU machine."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.feeds import feeds_for
from benchmarks.gpu.cases import TYPES, Array, differences
from benchmarks.gpu.weights import KEPT, drawn, grown, narrowed, seeded
from modelcc.artifact.file import write_artifact
from modelcc.driver import compile_model
from modelcc.options import Options

ENDING = ".seeded.onnx"
BATCHES = (1, 32)
ITEMS = 2
"""Distinct items that a batch is made of, cyclically."""

PLACES = 4096
"""Elements of an item's result that are compared, sampled by a seed."""

TOLERANCES = {"f32": 2e-3, "f16": 3e-2, "bf16": 8e-2}
"""Relative to the largest magnitude of a result, through a whole network."""

ORDER = (("f16", 1), ("bf16", 32), ("f32", 32), ("f16", 32), ("f32", 1), ("bf16", 1))
"""Dtypes and batches, the most informative first."""

PRECISIONS = ("tf32x3",)
OTHERS = tuple((precision, batch) for precision in PRECISIONS for batch in (32, 1))
"""f32 models whose products are computed in these precisions on request: other engines use f32."""

_RESULT, _DRAWN = "result:", "drawn:"
"""Prefixes of arrays stored besides inputs: results, and mean, deviation and shape of inputs
generated from a seed."""


@dataclass(frozen=True)
class Entry:
    """A model in ``folder`` at a batch; its dtype is the suffix of its name.  f32 products have
    ``precision``."""

    folder: Path
    stem: str
    batch: int
    precision: str = "f32"

    @property
    def dtype(self) -> str:
        """The dtype of its floats."""
        end = self.stem.rpartition("_")[2]
        return end if end in ("f16", "bf16") else "f32"

    @property
    def model(self) -> str:
        """Its name without the dtype."""
        return self.stem if self.dtype == "f32" else self.stem.rpartition("_")[0]

    @property
    def kind(self) -> str:
        """Its dtype, or the requested precision."""
        return self.dtype if self.precision == "f32" else self.precision

    @property
    def name(self) -> str:
        """The name of its row."""
        asked = "" if self.precision == "f32" else f" {self.precision}"
        return f"{self.stem}{asked} x{self.batch}"

    @property
    def artifact(self) -> Path:
        """Path of the compiled model."""
        return self.folder / f"{self.name.replace(' ', '_')}.mcc"

    def read(self) -> onnx.ModelProto:
        """The model as prepared."""
        return onnx.load(str(self.folder / f"{self.stem}{ENDING}"))

    def dims(self, model: onnx.ModelProto) -> dict[str, int]:
        """Sizes of all named dimensions."""
        shapes = (value.type.tensor_type.shape for value in model.graph.input)
        return {d.dim_param: self.batch for shape in shapes for d in shape.dim if d.dim_param}

    def feeds(self) -> dict[str, Array]:
        """Inputs in the model's dtype."""
        with np.load(_kept(self)) as kept:
            items = _items({n: kept[n] for n in kept.files if not n.startswith(_RESULT)})
        feeds = {n: np.resize(v, (self.batch, *v.shape[1:])) for n, v in items.items()}
        kind = TYPES[self.dtype]
        return {n: v.astype(kind) if v.dtype == np.float32 else v for n, v in feeds.items()}

    def error(self, results: Mapping[str, Any]) -> float:
        """The largest error at the compared elements, relative to the largest magnitude."""
        with np.load(_kept(self)) as kept:
            wanted = {n: kept[_RESULT + n] for n in results}
        return max(_error(sampled(n, np.asarray(results[n])), v) for n, v in wanted.items())


def differences_of(entry: Entry, results: Mapping[str, Any]) -> str:
    """Description of errors in the compared results; empty if correct."""
    lines: list[str] = []
    with np.load(_kept(entry)) as kept:
        for name, result in results.items():
            found = sampled(name, np.asarray(result))
            wanted = np.resize(kept[_RESULT + name], found.shape)
            lines.append(f"{name}: {differences(found, wanted, TOLERANCES[entry.dtype])}")
    return "\n".join(lines)


def _kept(entry: Entry) -> Path:
    return entry.folder / f"{entry.model}.npz"


def _items(kept: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of :data:`ITEMS` items; those not stored are generated."""
    items: dict[str, Array] = {}
    for name, value in kept.items():
        if name.startswith(_DRAWN):
            name = name.removeprefix(_DRAWN)
            mean, deviation, *shape = map(float, value)
            value = drawn(name, tuple(map(int, shape)), mean, deviation)
        items[name] = value
    return items


def _held(name: str, value: Array) -> tuple[str, Array]:
    """The stored form of an input: generated from a seed, if it has many floats."""
    if value.dtype != np.float32 or value.size <= KEPT:
        return name, value
    return _DRAWN + name, np.array([value.mean(), value.std(), *value.shape], np.float64)


def sampled(name: str, result: Array) -> Array:
    """Some elements of each item."""
    items = result.reshape(len(result), -1)
    places = np.random.default_rng(zlib.crc32(name.encode())).integers(0, items.shape[1], PLACES)
    return items[:, places].astype(np.float32)


def _error(found: Array, wanted: Array) -> float:
    wanted = np.resize(wanted, found.shape).astype(np.float64)
    error = float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))
    return error if np.isfinite(error) else np.inf


def prepare(path: Path, folder: Path) -> None:
    """Files of a model in f32, f16 and bf16 without its large weights, its inputs, and ONNX
    Runtime's results on the CPU in f32."""
    runtime = import_module("onnxruntime")  # which may be missing where the GPU is
    model = seeded(path)
    dims = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim}
    if not any(dims):
        raise ValueError(f"{path.name} has no named batch; the zoo's {path.stem}_dynamic has one")
    for end, kind in (("_f16", onnx.TensorProto.FLOAT16), ("_bf16", onnx.TensorProto.BFLOAT16)):
        onnx.save(narrowed(model, kind), str(folder / f"{path.stem}{end}{ENDING}"))
    onnx.save(model, str(folder / f"{path.stem}{ENDING}"))
    held = dict(_held(*one) for one in feeds_for(path, {}, batch=ITEMS).items())
    feeds = _items(held)
    whole = grown(model).SerializeToString()
    session = runtime.InferenceSession(whole, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results = zip(names, session.run(names, feeds), strict=True)
    kept = {_RESULT + name: sampled(name, np.asarray(value)) for name, value in results}
    np.savez_compressed(folder / f"{path.stem}.npz", **held, **kept)  # pyright: ignore


def entries(folder: Path, order: Sequence[tuple[str, int]] = (*ORDER, *OTHERS)) -> list[Entry]:
    """The prepared models of these dtypes and batches, in order."""
    stems = sorted(path.name.removesuffix(ENDING) for path in folder.glob(f"*{ENDING}"))
    found = [Entry(folder, stem, batch) for batch in BATCHES for stem in stems]
    whole = [entry for entry in found if entry.dtype == "f32"]
    found += [replace(entry, precision=asked) for asked in PRECISIONS for entry in whole]
    wanted = [entry for entry in found if (entry.kind, entry.batch) in order]
    return sorted(wanted, key=lambda entry: order.index((entry.kind, entry.batch)))


def build(entry: Entry, target: str) -> None:
    """Generates weights and compiles the model."""
    model = entry.read()
    dims = tuple(entry.dims(model).items())
    options = Options(target=target, dims=dims, precision=entry.precision)
    compiled = compile_model(grown(model), options)
    write_artifact(entry.artifact, compiled.artifact)
