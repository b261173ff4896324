"""Every argument of every public function: what is none is refused in words."""

from __future__ import annotations

import inspect
import io
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import mlp

import modelcc

MODEL = mlp("batch")
X = np.zeros((2, 6), np.float32)
HOSTILE = (None, 3, -1, 2.5, True, "8", b"8", [], [3], {}, {"a": 1}, {1: 2}, X, object(), print)
"""Values of many kinds; each argument is given those that are none for it."""


def not_of(*good: object) -> list[object]:
    """Of :data:`HOSTILE` those that are no ``good`` (by identity)."""
    return [value for value in HOSTILE if not any(value is one for one in good)]


NUMBERS, EMPTY = (3,), (HOSTILE[7], HOSTILE[9])
OPTIONS: dict[str, list[object]] = {
    "target": [v for v in not_of(None) if not isinstance(v, str)],
    "cpu": [v for v in not_of(None) if not isinstance(v, str)],
    "threads": [*not_of(None, *NUMBERS), 0, np.float32(2), np.True_],
    "dims": [
        *not_of(None, *EMPTY, HOSTILE[10]),
        *({"batch": v} for v in ("8", -1, 2.0, None, True, [], (1, 2, 3), (2, 1))),
        *({"batch": v} for v in (("1", 2), (1.5, 2), (0, 2), (True, 2))),
        (("batch", 2), ("batch", 3)),
    ],
    "optimize": [*not_of(None, *NUMBERS), 4],
    "accuracy": [*not_of(None), "exact"],
    "precision": [*not_of(None), "fp16"],
    "winograd": not_of(None, True),
    "strassen": not_of(None, True),
    "schedule": [v for v in not_of(None) if not isinstance(v, str)],
    "tuned": not_of(None, True),
    "libraries": [*not_of(None, *EMPTY), {"openblas": 3}, {3: ""}],
    "kernels": [*not_of(None), "libraries"],
    "skip": [*not_of(None, *EMPTY, HOSTILE[10]), ["a", 3]],
    "limit": [*not_of(None), ("a", "b"), (3, 3), ("a", -1), ("a",), ("a", 1, 2)],
    "keep": [*not_of(None, *EMPTY, HOSTILE[10]), ["a", 3]],
    "unchecked": not_of(None, True),
    "ram": [*not_of(None, *NUMBERS), 0, "8K"],
    "machine": [*not_of(None, *EMPTY), {"l2_bytes": "many"}, {"l2_bytes": 0.5}, {"fmas": -1}],
}  # fmt: skip
"""Wrong values of the fields of Options."""
FOLDERS = [v for v in not_of(None) if not isinstance(v, str)]
PATHS = [v for v in HOSTILE if not isinstance(v, str)] + ["", "a\0b"]
MODELS: list[object] = [
    *(v for v in HOSTILE if not isinstance(v, str | bytes)),
    "", "a\0b", MODEL.graph, io.BytesIO(b"x"), modelcc, types,
]  # fmt: skip
CALLS: dict[Callable[..., Any], dict[str, list[object]]] = {
    modelcc.compile: {
        "model": MODELS, **OPTIONS, "options": not_of(None), "cache": FOLDERS,
        "progress": not_of(None, print), "measured": not_of(True),
        "separate": not_of(None, True),
        "args": [v for v in not_of(None) if not isinstance(v, str)],
        "kwargs": not_of(None), "dynamic_shapes": not_of(None),
    },
    modelcc.import_model: {
        "model": MODELS, "options": not_of(None), "dims": OPTIONS["dims"],
        "keep": OPTIONS["keep"],
    },
    modelcc.verify: {
        "model": MODELS, **{n: v for n, v in OPTIONS.items() if n != "keep"},
        "options": not_of(None), "cache": FOLDERS, "progress": not_of(None, print),
        "feeds": [*not_of(None, HOSTILE[9]), {"x": X[0]}, {"x": X.astype("f8")}, {"x": None},
                  {"x": X, "z": X}],
        "sizes": [*not_of(None, *EMPTY), {"batch": "2"}, {"batch": (1, 2)}, {"batch": None}],
        "seed": not_of(*NUMBERS), "tolerance": [*not_of(None, 3, 2.5), float("nan")],
        "layers": not_of(True), "bisect": not_of(True), "measured": not_of(True),
    },
    modelcc.load: {"path": PATHS, "threads": OPTIONS["threads"], "target": OPTIONS["target"],
                   "sha256": [v for v in not_of(None) if not isinstance(v, str)],
                   "libraries": OPTIONS["libraries"],
                   "interpreter": [v for v in PATHS if v is not None]},
}  # fmt: skip


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_every_argument_is_tried(function: Callable[..., Any]) -> None:
    assert set(CALLS[function]) == set(inspect.signature(function).parameters)


def test_options_can_be_given_one_by_one() -> None:
    """A field that is added to Options must be an argument as well."""
    names = {field.name for field in fields(modelcc.Options)}
    assert names <= set(inspect.signature(modelcc.compile).parameters)
    assert names - {"keep"} <= set(inspect.signature(modelcc.verify).parameters)
    assert names == set(OPTIONS)


CASES = [(f, name, value) for f, table in CALLS.items() for name in table for value in table[name]]


@pytest.mark.parametrize(
    ("function", "name", "value"),
    CASES,
    ids=[f"{f.__name__}-{name}-{type(value).__name__}" for f, name, value in CASES],
)
def test_wrong_arguments_are_refused_in_words(
    function: Callable[..., Any], name: str, value: object
) -> None:
    arguments: dict[str, object] = (
        {"path": "net.mcc"} if function is modelcc.load else {"model": MODEL}
    )
    if function is modelcc.verify and name in ("feeds", "sizes"):
        arguments["threads"] = 1
    with pytest.raises(modelcc.Error) as caught:
        function(**{**arguments, name: value})
    text = str(caught.value)
    assert name in text or any(key in text for key in ("'x'", "'z'", "'a'")), text
    assert "Traceback" not in text and "object at 0x" not in text


@pytest.mark.parametrize("name", OPTIONS)
def test_options_refuse_what_compile_refuses(name: str) -> None:
    may_be_none = name in ("kernels", "limit", "ram", "winograd", "strassen")
    for value in (*OPTIONS[name], *(() if may_be_none else (None,))):
        wrong: dict[str, Any] = {name: value}
        with pytest.raises(modelcc.ModelError, match=name):
            modelcc.Options(**wrong)


def module_of(package: str, name: str) -> object:
    """An object of a class that says it comes from ``package``, which need not be installed."""
    base = type("Module", (), {"__module__": f"{package}.nn.modules"})
    return type(name, (base,), {"__module__": "__main__"})()


@pytest.mark.parametrize(
    ("package", "advice"),
    [("keras", "model.export("), ("sklearn", "skl2onnx")],
)
def test_models_of_frameworks_are_told_how_to_export(package: str, advice: str) -> None:
    with pytest.raises(modelcc.ModelError) as caught:
        modelcc.compile(module_of(package, "Net"))  # type: ignore[arg-type]
    assert advice in str(caught.value) and "__main__.Net" in str(caught.value)


@pytest.mark.skipif(find_spec("torch") is not None, reason="it is there")
def test_what_a_module_of_pytorch_needs_is_named() -> None:
    with pytest.raises(modelcc.ModelError, match=r"pip install modelcc\[torch\]"):
        modelcc.compile(module_of("torch", "Net"))  # type: ignore[arg-type]


def test_bytes_like_models_and_paths_are_taken() -> None:
    data = MODEL.SerializeToString()
    for model in (data, bytearray(data), memoryview(data)):
        assert modelcc.import_model(model).inputs == ("x",)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def net() -> modelcc.Model:
    return modelcc.compile(MODEL, threads=1, cache=None)


def test_arguments_of_methods(net: modelcc.Model, tmp_path: Path) -> None:
    bad: list[tuple[Callable[..., object], Mapping[str, object] | tuple[object, ...], str]] = [
        (net.run, (X,), "dict"),
        (net.run, (None,), "dict"),
        (net.run, ({"x": X, "z": X},), "'z'"),
        (net, ({"x": X, "z": X},), "'z'"),
        (net, (X, X), "1 inputs, got 2"),
        (net, {"x": X, "z": X}, "small(x), got 'z'"),
        (net, {"x": X, "out": 5}, "out="),
        (net, {"x": X, "out": "y"}, "out="),
        (net, {"x": X, "out": {"q": X}}, "'q'"),
        (net, {"x": X, "out": (X, X)}, "1 arrays"),
        (net.save, (None,), "path"),
        (net.save, ("",), "path"),
        (net.report, (3,), "profile"),
        (net.report, ({"x": X, "z": X},), "'z'"),
        (net.random_inputs, ({"batch": "2"},), "'batch'"),
        (net.random_inputs, ({"batc": 2},), "'batc'"),
        (net.random_inputs, ({"batch": 2**61},), "no array has the shape"),
        (net.random_inputs, (None, "0"), "seed"),
        (net.random_inputs, (None, -1), "seed"),
    ]
    for function, given, says in bad:
        with pytest.raises(modelcc.Error) as caught:
            if isinstance(given, tuple):
                function(*given)
            else:
                function(**given)
        assert says in str(caught.value), given
    for place in (tmp_path / "none" / "net.mcc", tmp_path):
        with pytest.raises(OSError) as failed:
            net.save(place)
        assert failed.value.filename == str(place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["winograd", "strassen"])
def test_strict_accuracy_contradicts_what_it_leaves_out(name: str) -> None:
    """Asked for both ways at once, however the two are given; leaving it out twice is fine."""
    without: dict[str, Any] = {name: False}
    wanted: dict[str, Any] = {name: True}
    strict = modelcc.Options(accuracy="strict", **without)
    for options in (strict, modelcc.Options(accuracy="strict")):
        with pytest.raises(modelcc.ModelError, match=f"{name} contradicts accuracy 'strict'"):
            modelcc.compile(MODEL, options=options, cache=None, **wanted)
    with pytest.raises(modelcc.ModelError, match=f"{name} contradicts accuracy 'strict'"):
        modelcc.compile(MODEL, options=modelcc.Options(**wanted), accuracy="strict")


def test_accuracy_is_part_of_the_key_of_caches() -> None:
    assert modelcc.Options().key() != modelcc.Options(accuracy="strict").key()


def test_options_reach_the_compiler() -> None:
    def stages(**asked: Any) -> set[str]:
        given: dict[str, Any] = {"threads": 1, **asked}
        net = modelcc.compile(MODEL, cache=None, **given)
        return {stage.stage.partition("/")[2] for stage in net.report().stages}

    both = {"Winograd", "Strassen"}
    without = modelcc.Options(winograd=False)
    assert stages() >= both
    assert stages(winograd=False) & both == stages(options=without) & both == {"Strassen"}
    assert stages(options=without, winograd=True, strassen=False) & both == {"Winograd"}
    assert stages(accuracy="strict") & both == set()
    assert stages(options=modelcc.Options(accuracy="strict"), accuracy="standard") >= both
    assert "FuseKernels" not in stages(skip=["FuseKernels"])
    options = modelcc.Options(threads=2, keep=("x",))
    net = modelcc.compile(MODEL, options=options, optimize=0, cache=None)
    assert net.threads == 2 and [spec.name for spec in net.outputs] == ["y", "x"]


def test_errors_have_one_base_and_survive_other_processes() -> None:
    kinds = [modelcc.ArtifactError, modelcc.InputError, modelcc.LoadError, modelcc.ModelError,
             modelcc.RunError, modelcc.StageError]  # fmt: skip
    assert all(issubclass(kind, modelcc.Error) for kind in kinds)
    assert issubclass(modelcc.InputError, ValueError) and issubclass(modelcc.RunError, RuntimeError)
    examples: list[modelcc.Error] = [
        modelcc.ArtifactError("a.mcc", "it is cut off", "compile it again"),
        modelcc.InputError("input 'x'", "f32", "f64", "convert it"),
        modelcc.LoadError("no"),
        modelcc.ModelError("wrong", ("net", "node"), "do this"),
        modelcc.RunError("stopped"),
        modelcc.StageError("stage"),
    ]
    assert {type(error) for error in examples} == set(kinds)
    for error in examples:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_errors_are_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "errors.md").read_text("utf-8")
    for name in modelcc.__all__:
        if name.endswith("Error"):
            assert f"`modelcc.{name}`" in text, name


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "modelcc", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("modelcc, version ")
