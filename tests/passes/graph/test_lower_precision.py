"""Products in bf16 and f16: what is rounded, what stays f32, and how far results are off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import BF16, F16, F32, TensorType
from modelcc.ops.activation import Gelu, Relu
from modelcc.ops.arithmetic import Add, Cast, Value
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.attention_gradients import AttentionSums
from modelcc.ops.conv import Conv
from modelcc.ops.layer_norm import LayerNorm
from modelcc.ops.matmul import MatMul
from modelcc.ops.pool import MaxPool
from modelcc.ops.shape import Transpose
from modelcc.ops.transcendental import Exp
from modelcc.passes.graph.lower_precision import LowerPrecision
from modelcc.passes.graph.recognise_attention import RecogniseAttention
from tests.passes.graph.examples import assert_same_meaning, feeds_of
from tests.passes.graph.formulas import call, constant, f32, graph_of


def random(like: Value, *shape: int, scale: float = 0.1, seed: int = 0) -> Value:
    return constant(like, np.random.default_rng(seed).standard_normal(shape) * scale)


def product(x: Value, y: Value) -> Value:
    return call(MatMul(), x, y)


def convolved(x: Value, channels: int) -> Value:
    taps = random(x, channels, x.type.static_shape()[1], 3, 3)
    return call(Conv((1, 1), (1, 1), (1, 1), (1, 1)), x, taps)


def network(x: Value) -> Value:
    """Convolutions with a residual and a pool."""
    first = call(Relu(), convolved(x, 16))
    second = call(Relu(), call(Add(), convolved(first, 16), first))
    pooled = call(MaxPool((2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), second)
    return convolved(pooled, 8)


def transformer(x: Value) -> Value:
    """A block: attention of one head with a mask, and two layers, each with a residual."""
    scale, bias = random(x, 32, scale=1.0), random(x, 32)
    normal = call(LayerNorm(2, 1e-5), x, scale, bias)
    q, k, v = (product(normal, random(x, 32, 32 + 0 * n)) for n in range(3))
    scores = call(MatMul(), q, call(Transpose((0, 2, 1)), k)) * 0.2
    hidden = constant(x, np.where(np.arange(24) < 20, 0.0, -3.4e38).astype(np.float32))
    mixed = call(MatMul(), call(Softmax(2), call(Add(), scores, hidden)), v)
    x = call(Add(), x, product(mixed, random(x, 32, 32)))
    normal = call(LayerNorm(2, 1e-5), x, scale, bias)
    inner = call(Gelu(), product(normal, random(x, 32, 64)))
    return call(Add(), x, product(inner, random(x, 64, 32)))


def test_results_are_near_those_of_f32(tmp_path: Path) -> None:
    """In compiled code, against the interpreter and onnxruntime in f32."""
    path = tmp_path / "model.onnx"
    modelcc.export_onnx(graph_of(transformer, f32(2, 24, 32)), path)
    found = modelcc.verify(path, precision="bf16", threads=1, cache=None)
    assert found.agrees and found.peer
    assert found.precision == "5 of 5 products multiply bf16 and add in f32"
    (difference,) = found.reference
    assert 1e-4 < difference.relative < difference.tolerance


def test_convolutions_keep_their_meaning() -> None:
    before = graph_of(network, f32(1, 8, 12, 12))
    assert_same_meaning(before, LowerPrecision(F16)(before), 5e-3)


def test_sums_stay_wide() -> None:
    """Norms and softmax, masks, and residuals of what is f32."""
    graph = LowerPrecision(F16)(RecogniseAttention()(graph_of(transformer, f32(2, 24, 32))))
    used = {type(node.op): [graph.types[n].dtype for n in node.inputs] for node in graph.nodes}
    assert used[Attention] == [F16, F16, F16, F32]
    assert used[LayerNorm] == [F32, F32, F32]
    assert used[MatMul] == [F16, F16]
    assert used[Add] == [F32, F32]


def test_results_that_are_sums_stay_wide() -> None:
    """Of several results those are rounded that the op gives in its operands' type."""
    build = GraphBuilder("g")
    x = build.input("x", TensorType((1, 2, 3, 4), F32))
    y, sums = build.add(AttentionSums(0.5), x, x, x)
    graph = LowerPrecision(BF16)(build.build([y, sums]))
    (node,) = (node for node in graph.nodes if isinstance(node.op, AttentionSums))
    assert [graph.types[name].dtype for name in node.outputs] == [BF16, F32]
    assert node.outputs[1] == graph.outputs[1]
    assert [graph.types[name].dtype for name in graph.outputs] == [F32, F32]


def test_what_is_between_products_is_stored_narrow() -> None:
    graph = LowerPrecision()(graph_of(network, f32(1, 8, 12, 12)))
    used = {type(node.op): [graph.types[n].dtype for n in node.inputs] for node in graph.nodes}
    assert used[MaxPool] == [BF16]
    (add,) = (node for node in graph.nodes if isinstance(node.op, Add))
    made = graph.producers()
    assert [made[made[n].inputs[0]].op for n in add.inputs if n in made][1:] == [Cast(BF16)]
    (relu,) = (n for n in graph.nodes if isinstance(n.op, Relu) and n.inputs == add.outputs)
    assert graph.types[relu.inputs[0]].dtype == F32


def test_movements_are_of_what_is_rounded() -> None:
    def formula(x: Value) -> Value:
        return product(call(Transpose((1, 0)), call(Exp(), x)), random(x, 3, 4))

    graph = LowerPrecision()(graph_of(formula, f32(3, 5)))
    assert [type(node.op) for node in graph.nodes][:3] == [Exp, Cast, Transpose]


def test_constants_beyond_the_range_keep_their_product() -> None:
    def formula(x: Value) -> Value:
        return product(product(x, random(x, 5, 4)), random(x, 4, 3, scale=1e6))

    graph = graph_of(formula, f32(3, 5))
    net = modelcc.compile(graph, precision="f16", threads=1, cache=None)
    assert net.report().precision.startswith("1 of 2 products multiply f16 and add in f32; as they")
    feeds = feeds_of(graph)
    want = interpret(graph, feeds)
    for name, value in net.run(feeds).items():
        np.testing.assert_allclose(value, want[name], rtol=1e-2, atol=1e4)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_only_machines_that_have_it_round_to_tf32(precision: str) -> None:
    graph = graph_of(lambda x: product(x, random(x, 5, 4)), f32(3, 5))
    with pytest.raises(
        modelcc.ModelError, match=rf"target 'native' has no products in {precision}\b"
    ):
        modelcc.compile(graph, precision=precision)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_errors_are_no_greater_than_those_of_autocast(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, activation="gelu")
    conv = [nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(128, 9)]
    for module, x in (
        (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 12, 32)),
        (nn.Sequential(*conv), torch.randn(1, 4, 8, 8)),
    ):
        precision = "bf16" if dtype == "bfloat16" else "f16"
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            want = module.eval()(x).numpy()
        with torch.no_grad(), torch.autocast("cpu", dtype=getattr(torch, dtype)):
            peer = module(x).float().numpy()
        net = modelcc.compile(module, (x,), precision=precision, threads=1, cache=None)
        errors = [np.abs(result - want).max() for result in (np.asarray(net(x.numpy())), peer)]
        assert 0 < errors[0] < 1.5 * errors[1]
