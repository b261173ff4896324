"""onnxruntime's own operators (com.microsoft) through compiled code, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import modelcc
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.types import Array
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import floats, one_node, run_onnxruntime

MS = "com.microsoft"
Form = tuple[str, Sequence[Array | None], dict[str, Any]]


def i32(*values: int, shape: tuple[int, ...] | None = None) -> Array:
    array = np.array(values, np.int32)
    return array if shape is None else array.reshape(shape)


def agrees(form: Form, outputs: int = 1, rtol: float = 1e-4, symbolic: bool = False) -> None:
    op, operands, attributes = form
    model, feeds = ml_model(op, operands, MS, 1, outputs, symbolic, **attributes)
    assert_compiled_agrees(model, feeds, rtol, 1e-5)


X, W = floats(2, 5, 8), floats(2, 8, 6, seed=1)
ROW = floats(8, seed=3)
IMAGE, KERNEL = floats(1, 3, 6, 6), floats(4, 3, 3, 3, seed=2)

SIMPLE: tuple[Form, ...] = (
    ("FusedMatMul", [X, W], {"alpha": 0.5}),
    ("FusedMatMul", [floats(2, 8, 5), W], {"transA": 1}),
    ("FusedMatMul", [X, floats(2, 6, 8)], {"transB": 1}),
    ("FusedMatMul", [floats(5, 2, 8), W], {"transBatchA": 1}),
    ("FusedMatMul", [X, floats(8, 2, 6)], {"transBatchB": 1}),
    ("TransposeMatMul", [floats(2, 8, 5), W], {"transA": 1, "alpha": 2.0}),
    ("Gelu", [X], {}),
    ("BiasGelu", [X, ROW], {}),
    ("FastGelu", [X], {}),
    ("FastGelu", [X, ROW], {}),
    ("QuickGelu", [X], {}),
    ("QuickGelu", [X], {"alpha": 1.0}),
    ("FusedConv", [IMAGE, KERNEL, floats(4)], {"activation": "Relu", "pads": [1] * 4}),
    ("FusedConv", [IMAGE, KERNEL], {"activation": "LeakyRelu", "activation_params": [0.1]}),
    ("FusedConv", [IMAGE, KERNEL], {"activation": "Clip", "activation_params": [-1.0, 1.0]}),
    (
        "FusedConv",
        [IMAGE, KERNEL, floats(4), floats(1, 4, 4, 4, seed=9)],
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]},
    ),
    (
        "FusedGemm",
        [floats(3, 4), floats(5, 4), floats(5)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    ("GatherND", [X, np.array([[0, 1], [1, 4]])], {}),
    ("Trilu", [floats(4, 4)], {"upper": 0}),
    ("Inverse", [floats(3, 2, 2, seed=8)], {}),
    ("CDist", [floats(4, 3), floats(5, 3, seed=1)], {"metric": "euclidean"}),
    ("CDist", [floats(4, 3), floats(5, 3, seed=1)], {"metric": "sqeuclidean"}),
    ("SkipLayerNormalization", [X, floats(2, 5, 8, seed=5), ROW], {}),
    ("SkipLayerNormalization", [X, floats(2, 5, 8, seed=5), ROW, floats(8), floats(8)], {}),
    ("SkipSimplifiedLayerNormalization", [X, floats(2, 5, 8, seed=5), ROW], {"epsilon": 1e-3}),
    ("SkipSimplifiedLayerNormalization", [X, floats(2, 5, 8, seed=5), ROW, floats(8)], {}),
)


@pytest.mark.parametrize("form", SIMPLE, ids=lambda f: f[0])
def test_simple(form: Form) -> None:
    agrees(form)


def test_convolution_with_channels_last() -> None:
    """onnxruntime has none for processors, so it is compared with its ordinary one."""
    operands = [IMAGE, KERNEL, floats(4)]
    usual, feeds = one_node("Conv", operands, pads=[1] * 4)
    moved = [o.transpose(0, 2, 3, 1).copy() for o in operands[:2]]
    model, own = ml_model("NhwcConv", [*moved, operands[2]], MS, pads=[1] * 4)
    got = modelcc.compile(model, threads=1, cache=None).run(own)["y0"]
    expected = run_onnxruntime(usual, feeds)["y0"].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(got, expected, 1e-4, 1e-5)


def test_split_gelu() -> None:
    """onnxruntime has none for processors; PyTorch has the gelu."""
    x, bias = floats(2, 3, 8), floats(8, seed=1)
    model, feeds = ml_model("BiasSplitGelu", [x, bias], MS)
    got = modelcc.compile(model, threads=1, cache=None).run(feeds)["y0"]
    torch = pytest.importorskip("torch")
    first, second = torch.from_numpy(x + bias).chunk(2, -1)
    expected = first * torch.nn.functional.gelu(second)
    np.testing.assert_allclose(got, expected.numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("silu", [0, 1])
def test_group_norm(last: int, silu: int) -> None:
    """onnxruntime has none for processors; PyTorch has one."""
    x, scale, bias = floats(2, 6, 4, 4), floats(6, seed=1), floats(6, seed=2)
    own = x.transpose(0, 2, 3, 1).copy() if last else x
    model, feeds = ml_model(
        "GroupNorm", [own, scale, bias], MS, groups=3, activation=silu, channels_last=last
    )
    got = modelcc.compile(model, threads=1, cache=None).run(feeds)["y0"]
    torch = pytest.importorskip("torch")
    parts = [torch.from_numpy(a) for a in (x, scale, bias)]
    expected = torch.nn.functional.group_norm(parts[0], 3, parts[1], parts[2], 1e-5)
    expected = torch.nn.functional.silu(expected) if silu else expected
    moved = expected.permute(0, 2, 3, 1) if last else expected
    np.testing.assert_allclose(got, moved.numpy(), 1e-4, 1e-5)


def test_sum_that_a_norm_passes_on() -> None:
    node = ("SkipLayerNormalization", [X, floats(2, 5, 8, seed=5), ROW, floats(8)], {})
    model, feeds = ml_model(node[0], node[1], MS, 1, 4)
    model.graph.node[0].output[1:3] = ["", ""]
    del model.graph.output[1:3]
    assert_compiled_agrees(model, feeds, 1e-4)


def test_norm_in_the_domain_of_the_standard() -> None:
    model, feeds = ml_model("SimplifiedLayerNormalization", [X, ROW], "", 18, epsilon=1e-6)
    del model.opset_import[1:]
    assert_compiled_agrees(model, feeds, 1e-4)


@pytest.mark.parametrize("mask", [False, True])
def test_embeddings(mask: bool) -> None:
    ids, segments = i32(1, 3, 0, 2, 2, 1, shape=(2, 3)), i32(0, 1, 1, 0, 0, 1, shape=(2, 3))
    tables = [floats(n, 8, seed=n) for n in (4, 5, 2)]
    operands = [ids, segments, *tables, floats(8, seed=1), floats(8, seed=2)]
    if mask:
        operands.append(i32(1, 1, 0, 1, 1, 1, shape=(2, 3)))
    agrees(("EmbedLayerNormalization", operands, {}), outputs=2)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_matrices_of_few_bits(bits: int, zeros: bool) -> None:
    random = np.random.default_rng(4)
    rows, columns, block = 40, 6, 16
    blocks = -(-rows // block)
    packed = random.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8)
    scales = random.uniform(0.01, 0.1, columns * blocks).astype(np.float32)
    points = random.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
    operands = [floats(3, rows), packed, scales, *([points.reshape(-1)] if zeros else [])]
    model, feeds = ml_model(
        "MatMulNBits", operands, MS, K=rows, N=columns, bits=bits, block_size=block
    )
    _store(model, feeds, "x0")
    assert_compiled_agrees(model, feeds, 1e-4, 1e-4)


def _store(model: ModelProto, feeds: dict[str, Array], kept: str) -> None:
    """Make initializers of all inputs but ``kept``."""
    for value in [t for t in model.graph.input if t.name != kept]:
        stored = numpy_helper.from_array(feeds.pop(value.name), value.name)
        model.graph.initializer.append(stored)
        model.graph.input.remove(value)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_few_bits(bits: int, zeros: bool) -> None:
    random = np.random.default_rng(4)
    data = random.integers(0, 256, (5, 32 * bits // 8), np.uint8)
    scales = random.uniform(0.01, 0.1, (5, 2)).astype(np.float32)
    points = [random.integers(0, 256, (5, 2 * bits // 8), np.uint8)] if zeros else []
    model, feeds = ml_model(
        "GatherBlockQuantized", [data, np.array([[4, 0, 2]]), scales, *points], MS,
        bits=bits, block_size=16, quantize_axis=1,
    )  # fmt: skip
    _store(model, feeds, "x1")
    assert_compiled_agrees(model, feeds)


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("ExpandDims", [X, i32(1, shape=())]),
        ("Range", [i32(1, shape=()), i32(9, shape=()), i32(3, shape=())]),
        ("Pad", [X, np.array([0, 1, 0, 0, 0, 2])]),
    ],
)
def test_what_needs_known_operands(op: str, operands: list[Array | None]) -> None:
    model, feeds = ml_model(op, operands, MS)
    _store(model, feeds, "x0" if op != "Range" else "")
    assert_compiled_agrees(model, feeds)


HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE
MASKS: tuple[Array | None, ...] = (
    None,
    i32(3, 5),
    i32(3, 5, 1, 0),
    i32(1, 1, 1, 0, 0, 1, 1, 1, 1, 1, shape=(2, 5)),
    (np.arange(50).reshape(2, 5, 5) % 3 > 0).astype(np.int32),
)


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: str(getattr(m, "shape", m)))
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: Array | None, causal: int) -> None:
    operands = [floats(2, 5, 6), floats(6, 3 * WIDTH, seed=1), floats(3 * WIDTH, seed=2), mask]
    agrees(("Attention", operands, {"num_heads": HEADS, "unidirectional": causal}))


@pytest.mark.parametrize(
    "more",
    [[floats(2, 2, HEADS, 3, SIZE, seed=6)], [None, floats(2, HEADS, 5, 5, seed=7)]],
    ids=["past", "bias"],
)
def test_attention_with_a_past_or_a_bias(more: list[Array | None]) -> None:
    operands = [floats(2, 5, 6), floats(6, 3 * WIDTH, seed=1), floats(3 * WIDTH, seed=2), None]
    attributes = {"num_heads": HEADS, "unidirectional": 1}
    agrees(("Attention", [*operands, *more], attributes), outputs=2 - (len(more) - 1))


def test_attention_with_values_of_another_size() -> None:
    sizes = [WIDTH, WIDTH, 2 * WIDTH]
    operands = [floats(2, 5, 6), floats(6, sum(sizes), seed=1), floats(sum(sizes), seed=2)]
    agrees(("Attention", operands, {"num_heads": HEADS, "qkv_hidden_sizes": sizes}))


Q, K, V = (floats(2, n, WIDTH, seed=seed) for n, seed in ((3, 3), (5, 11), (5, 5)))


@pytest.mark.parametrize(
    "operands",
    [
        [Q, K, V],
        [Q, K, V, floats(3 * WIDTH)],
        [Q, K, V, None, i32(3, 5)],
        [Q, K, V, None, i32(1, 1, 1, 0, 0, 1, 1, 1, 1, 1, shape=(2, 5))],
        [Q, K, V, None, None, floats(2, HEADS, 3, 5)],
        [Q, floats(2, HEADS, 5, SIZE), floats(2, HEADS, 5, SIZE, seed=4)],
    ],
    ids=["plain", "bias", "lengths", "padding", "scores", "as_heads"],
)
def test_multi_head_attention(operands: list[Array | None]) -> None:
    agrees(("MultiHeadAttention", operands, {"num_heads": HEADS}))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (1, 4), (6, 4)])
def test_queries_see_keys_up_to_their_own_position(
    queries: int, keys: int, past: int, symbolic: bool
) -> None:
    q = floats(2, queries, WIDTH, seed=3)
    k, v = (floats(2, keys, WIDTH, seed=s) for s in (11, 5))
    old = [floats(2, HEADS, past, SIZE, seed=s) for s in (7, 8)] if past else []
    added = floats(2, HEADS, queries, past + keys, seed=9)
    form = ("MultiHeadAttention", [q, k, v, None, None, added, *old])
    attributes = {"num_heads": HEADS, "unidirectional": 1}
    agrees((*form, attributes), outputs=3 if past else 1, symbolic=symbolic)


def test_queries_see_keys_that_are_heads_up_to_their_own_position() -> None:
    k, v = (floats(2, HEADS, 5, SIZE, seed=s) for s in (11, 5))
    agrees(("MultiHeadAttention", [Q, k, v], {"num_heads": HEADS, "unidirectional": 1}))


@pytest.mark.parametrize("count", [2, 3])
def test_packed_multi_head_attention(count: int) -> None:
    """onnxruntime has it for graphics cards only, so it is compared with the parts apart."""
    packed = floats(2, 5, HEADS, count, SIZE)
    parts = [packed[:, :, :, i].reshape(2, 5, WIDTH) for i in range(count)]
    attributes: dict[str, Any] = {"num_heads": HEADS}
    lead = [] if count == 3 else [Q]
    model, feeds = ml_model("MultiHeadAttention", [*lead, packed], MS, **attributes)
    apart, others = ml_model("MultiHeadAttention", [*lead, *parts], MS, **attributes)
    got = modelcc.compile(model, threads=1, cache=None).run(feeds)["y0"]
    np.testing.assert_allclose(got, run_onnxruntime(apart, others)["y0"], 1e-4, 1e-5)


def test_multi_head_attention_with_a_past() -> None:
    past = [floats(2, HEADS, 4, SIZE, seed=s) for s in (7, 8)]
    operands = [K, K * 2, V, None, None, None, *past]
    attributes = {"num_heads": HEADS, "unidirectional": 1}
    agrees(("MultiHeadAttention", operands, attributes), outputs=3)


GROUPS: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}


def _group(batch: int, length: int, past: int, size: int = 8) -> list[Array | None]:
    q = floats(batch, length, 4 * size, seed=1)
    k, v = (floats(batch, length, 2 * size, seed=s) for s in (2, 3))
    old = [floats(batch, 2, past, size, seed=s) for s in (4, 5)] if past else [None, None]
    return [q, k, v, *old]


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("past", [0, 6])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"local_window_size": 3}, {"softcap": 2.0}, {"scale": 0.1}, {"smooth_softmax": 1}],
    ids=lambda a: next(iter(a), "plain"),
)  # fmt: skip
def test_grouped_attention(length: int, past: int, attributes: dict[str, Any]) -> None:
    batch = 1 if past and length > 1 else 2  # all that onnxruntime takes
    total = past + length
    ends = i32(*[total - 1] * batch)
    operands = [*_group(batch, length, past), ends, i32(total, shape=())]
    agrees(("GroupQueryAttention", operands, GROUPS | attributes), outputs=3)


def test_grouped_attention_with_sinks() -> None:
    operands = [*_group(2, 4, 0), i32(3, 3), i32(4, shape=()), *[None] * 4, floats(4, seed=3)]
    agrees(("GroupQueryAttention", operands, GROUPS), outputs=3)


def test_grouped_attention_of_rows_of_different_lengths() -> None:
    """What is past the end of a row is left open, so the present keys are not compared."""
    operands = [*_group(2, 1, 6), i32(4, 6), i32(7, shape=())]
    model, feeds = ml_model("GroupQueryAttention", operands, MS, 1, 3, **GROUPS)
    net = modelcc.compile(model, threads=1, cache=None)
    expected = run_onnxruntime(model, feeds)["y0"]
    np.testing.assert_allclose(net.run(feeds)["y0"], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("past", [0, 6])
def test_grouped_attention_with_rotation(past: int, interleaved: int) -> None:
    length = 1 if past else 5
    total = past + length
    tables = [floats(32, 8, seed=s) for s in (8, 9)]
    operands = [*_group(2, length, past, 16), i32(total - 1, total - 1), i32(total, shape=())]
    attributes = GROUPS | {"do_rotary": 1, "rotary_interleaved": interleaved}
    agrees(("GroupQueryAttention", [*operands, *tables], attributes), outputs=3)


def test_grouped_attention_packed() -> None:
    q = floats(1, 3, 8 * 8)
    operands = [q, None, None, None, None, i32(2), i32(3, shape=())]
    agrees(("GroupQueryAttention", operands, GROUPS), outputs=3)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("x", "positions"),
    [
        (floats(2, 3, 16), np.array([5])),
        (floats(2, 3, 16), np.array([[0, 1, 2], [4, 5, 6]])),
        (floats(2, 2, 3, 8), np.array([2])),
    ],
)
def test_rotary_embedding(x: Array, positions: Array, interleaved: int) -> None:
    tables = [floats(32, 4, seed=s) for s in (8, 9)]
    attributes = {"interleaved": interleaved}
    agrees(("RotaryEmbedding", [x, positions, *tables], attributes))


def test_what_is_left_out_is_told() -> None:
    model, _ = ml_model("Inverse", [floats(3, 3)], MS)
    with pytest.raises(UnsupportedModel, match="inverses of matrices of more than 2 rows"):
        import_onnx(model)


def _softmax(x: Array, axis: int) -> Array:
    torch = pytest.importorskip("torch")
    return torch.softmax(torch.from_numpy(x), axis).numpy()


def _group_norm(x: Array, scale: Array, bias: Array) -> Array:
    torch = pytest.importorskip("torch")
    parts = (torch.from_numpy(a) for a in (scale, bias))
    moved = torch.from_numpy(x.transpose(0, 3, 1, 2))
    return torch.nn.functional.group_norm(moved, 2, *parts).numpy().transpose(0, 2, 3, 1)


def _fast_gelu(x: Array) -> Array:
    torch = pytest.importorskip("torch")
    return torch.nn.functional.gelu(torch.from_numpy(x), approximate="tanh").numpy()


A, C = floats(4, 3, 6), floats(2, 2, 3, 4, seed=5)
DEFINED: tuple[tuple[str, list[Array | None], dict[str, Any], Any], ...] = (
    ("BiasAdd", [A, ROW[:6], floats(4, 3, 6, seed=2)], {}, lambda x, b, s: x + b + s),
    ("GemmFastGelu", [A[0], floats(6, 5), floats(5)], {}, lambda x, w, b: _fast_gelu(x @ w + b)),
    (
        "FusedMatMulActivation", [A[0], floats(6, 5)], {"activation": "Relu", "alpha": 0.5},
        lambda a, b: np.maximum(0.5 * (a @ b), 0),
    ),
    (
        "BiasSoftmax", [A, floats(1, 3, 6)], {"axis": 2, "is_inner_broadcast": 1},
        lambda x, b: _softmax(x + b, 2),
    ),
    (
        "BiasSoftmax", [floats(4, 3, 6), floats(2, 3, 6)], {"axis": 2, "is_inner_broadcast": 0},
        lambda x, b: _softmax(x + np.concatenate([b, b]), 2),
    ),
    (
        "ComplexMul", [floats(3, 2), floats(3, 2, seed=4)], {},
        lambda a, b: (a.view(np.complex64) * b.view(np.complex64)).view(np.float32),
    ),
    (
        "ComplexMulConj", [floats(3, 2), floats(3, 2, seed=4)], {},
        lambda a, b: (a.view(np.complex64) * b.view(np.complex64).conj()).view(np.float32),
    ),
    (
        "SkipGroupNorm", [C, floats(4), floats(4, seed=1), floats(2, 4), floats(4, seed=2)],
        {"groups": 2, "activation": 0},
        lambda x, g, b, s, c: _group_norm(x + s[:, None, None] + c, g, b),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", DEFINED, ids=lambda c: c[0])
def test_operators_that_onnxruntime_has_for_other_devices_only(
    case: tuple[str, list[Array | None], dict[str, Any], Any],
) -> None:
    op, operands, attributes, expected = case
    model, feeds = ml_model(op, operands, "com.microsoft", 1, 1, **attributes)
    found = next(iter(modelcc.compile(model, threads=1, cache=None).run(feeds).values()))
    np.testing.assert_allclose(found, expected(*operands), rtol=1e-4, atol=1e-5)
