"""``modelcc verify`` names the node and the pass when a pass of the pipeline is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from small_models import mlp

import modelcc.driver
from modelcc.cli import main
from modelcc.ir.graph import Graph
from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import Apply, Kernel, Scalar, TensorProgram
from modelcc.ops.activation import Relu
from modelcc.ops.elementwise import Tanh
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.machine import MODELS

Verify = Callable[..., tuple[int, dict[str, Any]]]


@dataclass(frozen=True)
class WrongRelu:
    """Makes Tanh of Relu, as one rewrite."""

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        if self.limit == 0:
            return graph
        nodes = (replace(n, op=Tanh()) if isinstance(n.op, Relu) else n for n in graph.nodes)
        return replace(graph, nodes=tuple(nodes))


@dataclass(frozen=True)
class WrongFusion:
    """Fuses, and subtracts where it should add in kernels that were fused."""

    def __call__(self, program: TensorProgram) -> TensorProgram:
        fused = FuseKernels()(program)
        items = (
            replace(item, stages=tuple(replace(s, body=subtracting(s.body)) for s in item.stages))
            if isinstance(item, Kernel) and len(item.source) > 1
            else item
            for item in fused.items
        )
        return replace(fused, items=tuple(items))


def subtracting(body: Scalar) -> Scalar:
    def visit(node: Scalar) -> Scalar:
        is_sum = isinstance(node, Apply) and node.function == "add"
        return replace(node, function="sub") if is_sum else node

    return transform(body, visit)


@pytest.fixture
def verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    """Runs ``modelcc verify`` on the MLP; the exit code and what it found."""
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp("batch").SerializeToString())

    def run(*options: str) -> tuple[int, dict[str, Any]]:
        code = main(["verify", str(path), "--no-cache", "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_right_pipeline_has_no_culprit(verify: Verify) -> None:
    code, found = verify("--layers", "--bisect")
    assert (code, found["agrees"]) == (0, True)
    assert found["layer"] is None and found["culprit"] is None


def test_sizes_are_those_that_a_target_gives(verify: Verify) -> None:
    missing = missing_tools(MODELS["cortex-m4"])
    if missing:
        pytest.skip(missing)
    code, found = verify("--target", "cortex-m4")
    assert (code, found["agrees"], found["sizes"]) == (0, True, {})


def test_a_wrong_graph_pass(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelcc.driver, "RecogniseSilu", WrongRelu)
    code, found = verify("--layers", "--bisect")
    assert (code, found["agrees"]) == (1, False)
    assert found["layer"]["place"] == ["relu0"]
    assert found["layer"]["difference"]["name"] == "h2"
    assert (found["culprit"]["stage"], found["culprit"]["rewrite"]) == ("graph/WrongRelu", 1)


def test_a_wrong_tensor_pass(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the result of every node kept there is nothing to fuse: no node is wrong alone."""
    monkeypatch.setattr(modelcc.driver, "FuseKernels", WrongFusion)
    code, found = verify("--layers", "--bisect")
    assert (code, found["agrees"]) == (1, False)
    assert found["culprit"]["stage"] == "tensor/WrongFusion"
    assert found["culprit"]["rewrite"] is None
