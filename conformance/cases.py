"""The cases of an ONNX suite: of the installed package, or of another one that was unpacked."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, OptionalProto, SequenceProto, TensorProto, TypeProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

KINDS = ("node", "real", "simple", "pytorch-converted", "pytorch-operator")
DATA = Path("onnx/backend/test/data")
RTOL, ATOL = 1e-3, 1e-7

DataSet = tuple[list[Any], list[Any]]
"""Inputs and outputs: arrays, lists of them (sequences), or None (an empty optional)."""


@dataclass(frozen=True)
class Loaded:
    """A model and what it shall compute."""

    model: ModelProto
    data_sets: Sequence[DataSet]


@dataclass(frozen=True)
class Case:
    """One case: its name without ``test_``, and the tolerance that the suite asks for."""

    name: str
    kind: str
    load: Callable[[], Loaded]
    rtol: float = RTOL
    atol: float = ATOL


def collect(suite: Path | None = None) -> list[Case]:
    """All cases, by kind and name.

    ``suite`` is the folder of an unpacked onnx wheel; without it, the installed package's data
    and its single operators, which newer versions generate.
    """
    folder = (suite or Path(onnx.__file__).parent.parent) / DATA
    stored = [case for kind in KINDS for case in _stored(folder, kind)]
    generated = [] if suite or (folder / "node").is_dir() else _generated()
    return [*generated, *stored]


def _generated() -> list[Case]:
    with warnings.catch_warnings():  # making the cases overflows on purpose
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return sorted(
        (case_of(case) for case in found if case.model is not None and case.data_sets),
        key=lambda case: case.name,
    )


def case_of(case: TestCase) -> Case:
    """A case of a single operator, as the installed package makes it."""

    def load() -> Loaded:
        assert case.model is not None
        sets = [(_values(i), _values(o)) for i, o in case.data_sets or ()]
        return Loaded(case.model, sets)

    return Case(case.name.removeprefix("test_"), "node", load, case.rtol, case.atol)


def _values(values: Sequence[Any]) -> list[Any]:
    return [_value(value) for value in values]


def _value(value: Any) -> Any:
    match value:
        case TensorProto():
            return numpy_helper.to_array(value)
        case SequenceProto():
            return numpy_helper.to_list(value)
        case OptionalProto():
            return numpy_helper.to_optional(value)
        case np.generic():
            return np.asarray(value)
        case _:
            return value


def _stored(folder: Path, kind: str) -> list[Case]:
    found = sorted(p for p in (folder / kind).glob("test_*") if p.is_dir())
    return [_stored_case(path, kind, folder) for path in found]


def _stored_case(path: Path, kind: str, folder: Path) -> Case:
    notes = path / "data.json"
    told: dict[str, Any] = json.loads(notes.read_text()) if notes.is_file() else {}

    def load() -> Loaded:
        if (path / "model.onnx").is_file():
            return _of_folder(path)
        return _light(folder / "light" / Path(told["url"]).name)

    name = path.name.removeprefix("test_")
    return Case(name, kind, load, told.get("rtol", RTOL), told.get("atol", ATOL))


def _of_folder(path: Path) -> Loaded:
    model = onnx.load(path / "model.onnx")
    sets: list[DataSet] = []
    for data in sorted(path.glob("test_data_set*")):
        inputs = _read_all(data, "input", [i.type for i in model.graph.input])
        sets.append((inputs, _read_all(data, "output", [o.type for o in model.graph.output])))
    return Loaded(model, sets)


def _read_all(folder: Path, what: str, types: Sequence[TypeProto]) -> list[Any]:
    count = len(list(folder.glob(f"{what}_*.pb")))
    return [_read(folder / f"{what}_{i}.pb", types[i]) for i in range(count)]


def _read(path: Path, type: TypeProto) -> Any:
    kinds = {"sequence_type": SequenceProto, "optional_type": OptionalProto}
    proto = kinds.get(type.WhichOneof("value") or "", TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return _value(proto)


def _light(path: Path) -> Loaded:
    """A large network without its weights, on the input that the suite defines for it."""
    model = onnx.load(path)
    stored = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in stored]
    feeds = [Runner.generate_dummy_data(i, seed=0, name=path.stem) for i in inputs]
    outputs: list[Any] = []
    for position in range(len(model.graph.output)):
        proto = TensorProto()
        proto.ParseFromString((path.parent / f"{path.stem}_output_{position}.pb").read_bytes())
        outputs.append(numpy_helper.to_array(proto))
    return Loaded(model, [(feeds, outputs)])
