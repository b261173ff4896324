"""The table of standard layers names operators that the frontends have."""

from __future__ import annotations

from importlib import import_module

import pytest
from click.testing import CliRunner

from modelcc.cli.main import cli
from modelcc.frontends.kit.layers import LAYERS, StandardLayer
from modelcc.frontends.onnx.support import operators

ONNX = {support.name for support in operators() if support.how and not support.domain}


@pytest.mark.parametrize("layer", LAYERS, ids=[layer.name for layer in LAYERS])
def test_onnx_has_it(layer: StandardLayer) -> None:
    assert layer.onnx
    assert [name for name in layer.onnx if name not in ONNX] == []


@pytest.mark.parametrize("layer", LAYERS, ids=[layer.name for layer in LAYERS])
def test_torch_has_it(layer: StandardLayer) -> None:
    pytest.importorskip("torch")
    handlers = import_module("modelcc.frontends.torch.handlers").EXPORTED
    operators = {name.split(".")[0] for name in handlers}
    assert layer.aten
    assert set(layer.aten) <= operators


@pytest.mark.parametrize("layer", LAYERS, ids=[layer.name for layer in LAYERS])
def test_stablehlo_has_it(layer: StandardLayer) -> None:
    pytest.importorskip("jaxlib")
    handlers = import_module("modelcc.frontends.stablehlo.handlers").HANDLERS
    assert [n for n in layer.stablehlo if f"stablehlo.{n}" not in handlers] == []


@pytest.mark.parametrize("layer", LAYERS, ids=[layer.name for layer in LAYERS])
def test_tflite_has_it(layer: StandardLayer) -> None:
    pytest.importorskip("tflite")
    handlers = import_module("modelcc.frontends.tflite.handlers").HANDLERS
    assert [name for name in layer.tflite if name not in handlers] == []


def test_the_command_lists_it() -> None:
    result = CliRunner().invoke(cli, ["ops", "--frontends", "convol", "--json"])
    assert result.exit_code == 0
    assert '"aten"' in result.output and "ConvTranspose" in result.output
