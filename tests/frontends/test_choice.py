"""Which frontend reads what, and what is missing for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import modelcc
from modelcc.frontends.choice import ONNX, Frontend, frontend_of
from modelcc.ir.errors import ModelError


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("model.mlir", "stablehlo"),
        (Path("folder/MODEL.MLIRBC"), "stablehlo"),
        (b"ML\xefR rest", "stablehlo"),
        (b"// ours\nmodule { func.func @main() { return } }", "stablehlo"),
        (b"<\0\0\0 of jax ML\xefR rest", "stablehlo"),
        (b"<\0\0\0TFL3 with ML\xefR", "tflite"),
        (b"\x08\x07:\x10func.func { ML\xefR", "onnx"),
        ("model.onnx", "onnx"),
        (b"\x08\x07", "onnx"),
        (object(), "onnx"),
    ],
)
def test_a_source_is_read_by_its_frontend(source: object, module: str) -> None:
    assert frontend_of(source).module == f"modelcc.frontends.{module}"


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(ModelError, match=r"package no_such_package.*\n.*modelcc\[waves\]"):
        Frontend("no_such_package", "read", extra="waves").read("model.waves", {})


def test_a_module_of_ours_that_is_missing_is_a_fault() -> None:
    with pytest.raises(ModuleNotFoundError):
        Frontend("modelcc.no_such_frontend", "read", extra="waves").read("model.waves", {})


def test_functions_with_arguments_are_told_what_to_be() -> None:
    with pytest.raises(ModelError, match=r"a function is no model(.|\n)*forward of a torch.nn.M"):
        modelcc.compile(lambda x: x, (1,), cache=None)
    with pytest.raises(ModelError, match="this model knows its inputs"):
        modelcc.compile("model.onnx", (1,), cache=None)


def test_onnx_reads_the_rest() -> None:
    assert frontend_of(3) is ONNX
