"""onnxruntime's attention with caches and without padding, against onnxruntime or NumPy."""

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
from tests.frontends.onnx.onnx_models import floats

MS = "com.microsoft"
HEADS, SIZE, ROOM = 2, 4, 6
WIDTH = HEADS * SIZE


def model_of(
    op: str, operands: Sequence[Array | None], outputs: int = 1, constants: tuple[int, ...] = (),
    **attributes: Any,
) -> tuple[ModelProto, dict[str, Array]]:  # fmt: skip
    """A model of one node, some of whose operands are constants."""
    model, feeds = ml_model(op, operands, MS, 1, outputs, **attributes)
    for name in (f"x{i}" for i in constants):
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    left = [value for value in model.graph.input if value.name in feeds]
    del model.graph.input[:]
    model.graph.input.extend(left)
    return model, feeds


def run(
    op: str, operands: Sequence[Array | None], outputs: int = 1, constants: tuple[int, ...] = (),
    **attributes: Any,
) -> list[Array]:  # fmt: skip
    model, feeds = model_of(op, operands, outputs, constants, **attributes)
    return list(modelcc.compile(model, threads=1, cache=None).run(feeds).values())


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def heads(x: Array) -> Array:
    batch, length, _ = x.shape
    return x.reshape(batch, length, HEADS, SIZE).transpose(0, 2, 1, 3)


def attended(q: Array, k: Array, v: Array, added: Array | float = 0.0) -> Array:
    """Results [b, s, h * d] of heads."""
    found = softmax(q @ k.transpose(0, 1, 3, 2) / 2 + added) @ v
    return found.transpose(0, 2, 1, 3).reshape(len(q), -1, WIDTH)


CACHE = [floats(2, HEADS, ROOM, SIZE, seed=n) for n in (5, 6)]
STEP = [floats(2, 1, WIDTH, seed=n) for n in range(3)]


@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("more", [False, True])
def test_a_step_with_a_shared_cache(length: int, constant: bool, more: bool) -> None:
    mask = np.ones((2, length + 1), np.int32)
    mask[0, 0] = length == 0
    bias = floats(1, HEADS, 1, length + 1, seed=8)
    extra = floats(3 * WIDTH, seed=9)
    past = np.array([length], np.int32)
    operands = [*STEP, mask if more else None, bias if more else None, *CACHE, past, None, None,
                extra if more else None]  # fmt: skip
    model, feeds = model_of(
        "DecoderMaskedMultiHeadAttention", operands, 3, (7,) if constant else (),
        num_heads=HEADS, past_present_share_buffer=1,
    )  # fmt: skip
    net = modelcc.compile(model, threads=1, cache=None)
    found = list(net.run(feeds).values())
    offset = extra.reshape(3, 1, 1, WIDTH) if more else np.zeros((3, 1, 1, 1), np.float32)
    q, k, v = (heads(x + o) for x, o in zip(STEP, offset, strict=True))
    caches = [c.copy() for c in CACHE]
    for cache, new in zip(caches, (k, v), strict=True):
        cache[:, :, length] = new[:, :, 0]
    keys, values = (c[:, :, : length + 1] for c in caches)
    added = np.where(mask[:, None, None] > 0, 0, -10000.0) + bias if more else 0.0
    np.testing.assert_allclose(found[0], attended(q, keys, values, added), 1e-4, 1e-5)
    np.testing.assert_array_equal(found[1], caches[0])
    np.testing.assert_array_equal(found[2], caches[1])


def test_a_step_of_packed_operands() -> None:
    operands = [np.concatenate(STEP, 2), *[None] * 4, *CACHE, np.array([2], np.int32)]
    attributes: dict[str, Any] = {"num_heads": HEADS, "past_present_share_buffer": 1}
    packed = run("DecoderMaskedMultiHeadAttention", operands, 3, **attributes)
    apart = [*STEP, *[None] * 2, *CACHE, np.array([2], np.int32)]
    for one, other in zip(
        packed, run("DecoderMaskedMultiHeadAttention", apart, 3, **attributes), strict=True
    ):
        np.testing.assert_allclose(one, other, 1e-6, 1e-6)


@pytest.mark.parametrize("mask", [None, np.array([[1, 1, 0], [1, 1, 1]], np.int32)])
def test_a_step_across(mask: Array | None) -> None:
    k, v = (floats(2, HEADS, 3, SIZE, seed=n) for n in (3, 4))
    operands = [STEP[0], k, v, mask]
    model, feeds = ml_model("DecoderMaskedMultiHeadAttention", operands, MS, num_heads=HEADS)
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)


def test_a_step_of_beams() -> None:
    """Each position of a beam may come from another beam of its batch."""
    length, beams = 3, 2
    origins = np.zeros((1, beams, ROOM), np.int32)
    origins[0, :, :length] = [[1, 0, 1], [0, 0, 1]]
    origins[0, :, length] = [0, 1]
    past, width = np.array([length], np.int32), np.array([beams], np.int32)
    operands = [*STEP, None, None, *CACHE, past, width, origins]
    found = run(
        "DecoderMaskedMultiHeadAttention", operands, 3, num_heads=HEADS,
        past_present_share_buffer=1,
    )  # fmt: skip
    caches = [c.copy() for c in CACHE]
    for cache, new in zip(caches, STEP[1:], strict=True):
        cache[:, :, length] = heads(new)[:, :, 0]
    seen = [
        np.stack([np.stack([c[origins[0, b, t], :, t] for t in range(length + 1)], 1)
                  for b in range(beams)])
        for c in caches
    ]  # fmt: skip
    np.testing.assert_allclose(found[0], attended(heads(STEP[0]), *seen), 1e-4, 1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_a_step_with_its_projection(shared: bool) -> None:
    """onnxruntime has none for processors; with the projection it is the one above."""
    x, weights, bias = floats(2, 1, 5), floats(5, 3 * WIDTH, seed=1), floats(3 * WIDTH, seed=2)
    length = np.array([2], np.int32)
    caches = [c if shared else c[:, :, :2] for c in CACHE]
    keys, values = (c.reshape(1, *c.shape) for c in caches)
    if shared:  # four numbers of a key have 16 bytes
        keys = np.moveaxis(keys.reshape(*keys.shape[:4], 1, 4), 4, 3).reshape(keys.shape)
    past = np.concatenate([keys, values])
    attributes: dict[str, Any] = {"num_heads": HEADS, "past_present_share_buffer": int(shared)}
    operands = [x, weights, bias, None, past, None, length]
    y, present = run("DecoderMaskedSelfAttention", operands, 2, **attributes)
    q, k, v = (heads(part) for part in np.split(x @ weights + bias, 3, 2))
    seen = [np.concatenate([c[:, :, :2], n], 2) for c, n in zip(CACHE, (k, v), strict=True)]
    np.testing.assert_allclose(y, attended(q, *seen), 1e-4, 1e-5)
    np.testing.assert_allclose(present[1][:, :, :3], seen[1], 1e-5, 1e-6)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("static", [False, True])
def test_decoder_attention(static: bool, past: bool) -> None:
    """onnxruntime has none for processors: by its definition."""
    query, key = floats(1, 2, WIDTH), floats(3, 2, WIDTH, seed=1)
    wq, wkv = floats(WIDTH, WIDTH, seed=2), floats(WIDTH, 2 * WIDTH, seed=3)
    bias = floats(3 * WIDTH, seed=4)
    caches = [c[:, :, :3].copy() for c in CACHE]
    total = 3 if static else 1 + 3 * past
    padding = np.zeros((2, total), bool)
    padding[1, -1] = total > 1
    switches = [np.array([s]) for s in (static, past, past, True)]
    operands = [query, key, wq, wkv, bias, padding, *caches, *switches]
    y, keys, values = run("DecoderAttention", operands, 3, (8, 9, 10, 11), num_heads=HEADS)
    q = heads((query @ wq + bias[:WIDTH]).transpose(1, 0, 2))
    source = key if static else query
    k, v = np.split((source @ wkv + bias[WIDTH:]).transpose(1, 0, 2), 2, 2)
    k, v = heads(k), heads(v)
    if past:
        k, v = caches if static else [np.concatenate([c, n], 2)
                                      for c, n in zip(caches, (k, v), strict=True)]  # fmt: skip
    added = np.where(padding[:, None, None], -1e9, 0.0)
    np.testing.assert_allclose(y.transpose(1, 0, 2), attended(q, k, v, added), 1e-4, 1e-5)
    np.testing.assert_allclose(keys, k, 1e-5, 1e-5)
    np.testing.assert_allclose(values, v, 1e-5, 1e-5)


def sparse(length: int, total: int, rotary: bool, packed: bool) -> None:
    few, size, room, block = 1, 16, 64, 16
    q, k, v = (floats(2, length, n * size, seed=i) for i, n in enumerate((HEADS, few, few)))
    past = [floats(2, few, room, size, seed=n) for n in (5, 6)]
    rows = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32)
    columns = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)
    lengths = np.full(2, total, np.int32)
    angles = [floats(room, size // 2, seed=n) for n in (7, 8)] if rotary else []
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    operands = [*given, *past, rows, columns, np.array([total], np.int32), lengths, *angles]
    model, feeds = model_of(
        "SparseAttention", operands, 3, (5, 6, 7), num_heads=HEADS, kv_num_heads=few,
        sparse_block_size=block, do_rotary=int(rotary),
    )  # fmt: skip
    ours = modelcc.compile(model, threads=1, cache=None).run(feeds)
    if rotary:
        assert all(np.isfinite(x).all() for x in ours.values())
    blocks = np.zeros((2, 4, 4), bool)
    for layout in range(2):
        for row in range(4):
            blocks[layout, row, columns[layout, rows[layout, row] : rows[layout, row + 1]]] = True
    start = total - length
    k, v = (x.reshape(2, length, few, size).transpose(0, 2, 1, 3) for x in (k, v))
    caches = [c.copy() for c in past]
    for cache, new in zip(caches, (k, v), strict=True):
        cache[:, :, start:total] = new
    if rotary:
        return
    places = np.arange(total)
    seen = blocks[:, places[start:, None] // block, places // block] & (
        places <= places[start:, None]
    )
    q = q.reshape(2, length, HEADS, size).transpose(0, 2, 1, 3)
    k, v = (c[:, :, :total].repeat(HEADS, 1) for c in caches)
    scores = np.where(seen, q @ k.transpose(0, 1, 3, 2) / 4, -np.inf)
    expected = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, length, -1)
    np.testing.assert_allclose(ours["y0"], expected, 1e-4, 1e-5)
    np.testing.assert_array_equal(ours["y1"], caches[0])
    np.testing.assert_array_equal(ours["y2"], caches[1])


@pytest.mark.parametrize(("length", "total"), [(40, 40), (1, 50)])
@pytest.mark.parametrize("packed", [False, True])
def test_sparse_attention(length: int, total: int, packed: bool) -> None:
    sparse(length, total, False, packed)


COUNTS = np.array([1, 3], np.int32)
PADDED = floats(2, 4, WIDTH, seed=1)
OFFSETS = np.array([[0, 4, 5, 6], [1, 2, 3, 7]], np.int32)
ENDS = np.array([0, 1, 4], np.int32)


def test_padding_is_removed_and_restored() -> None:
    """onnxruntime has none for processors: by their definitions."""
    rows, offsets, ends, longest = run("RemovePadding", [PADDED, COUNTS], 4)
    kept = PADDED.reshape(8, WIDTH)[OFFSETS.reshape(-1)[:4]]
    np.testing.assert_array_equal(rows, kept)
    np.testing.assert_array_equal(offsets, OFFSETS)
    np.testing.assert_array_equal(ends, ENDS)
    np.testing.assert_array_equal(longest, [3])
    (whole,) = run("RestorePadding", [kept, OFFSETS])
    counted = np.arange(4) < COUNTS[:, None]
    np.testing.assert_array_equal(whole, np.where(counted[..., None], PADDED, 0))


@pytest.mark.parametrize("form", ["projected", "apart", "together"])
def test_attention_without_padding(form: str) -> None:
    """onnxruntime has none for processors: each sequence by itself."""
    x, bias = floats(4, 5), floats(3 * WIDTH, seed=2)
    weights, position = floats(5, 3 * WIDTH, seed=1), floats(1, HEADS, 4, 4, seed=3)
    joint = x @ weights
    if form == "projected":
        operands = [x, weights, bias, OFFSETS, ENDS, position]
        (found,) = run("PackedAttention", operands, num_heads=HEADS)
    else:
        parts: list[Array | None] = [p.copy() for p in np.split(joint, 3, 1)]
        if form == "together":
            together = np.stack([np.asarray(p).reshape(4, HEADS, SIZE) for p in parts], 2)
            parts = [together, None, None]
        operands = [*parts, bias, OFFSETS, ENDS, position]
        (found,) = run("PackedMultiHeadAttention", operands, num_heads=HEADS)
    for start, end in ((0, 1), (1, 4)):
        q, k, v = (heads(p[None]) for p in np.split((joint + bias)[start:end], 3, 1))
        count = end - start
        expected = attended(q, k, v, position[:, :, :count, :count])
        np.testing.assert_allclose(found[start:end], expected[0], 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("both", "expected"),
    [(1, [1, 10, 4, 1, 2, 11, 5, 2, 3, 12, 6, 3]), (0, [1, 1, 4, 1, 2, 2, 5, 2, 3, 3, 6, 3])],
)
def test_buckets_of_near_positions(both: int, expected: list[int]) -> None:
    """The example that onnxruntime's own test has."""
    table = np.arange(1, 13, dtype=np.float32).reshape(4, 3).T.reshape(4, 3).copy()
    length = np.array([2])
    (found,) = run("RelativePositionBias", [table, length, length], 1, (1, 2), max_distance=128,
                   is_bidirectional=both)  # fmt: skip
    assert found.shape == (1, 3, 2, 2) and found.reshape(-1).tolist() == expected


@pytest.mark.parametrize("both", [0, 1])
def test_buckets_of_all_positions(both: int) -> None:
    """As Raffel et al. have it, for a number of positions that the run tells."""
    count, heads_, length = 8, 2, 40
    table = floats(count, heads_, seed=3)
    sizes = [np.array([length]), np.array([length])]
    (found,) = run("RelativePositionBias", [table, *sizes], max_distance=20,
                   is_bidirectional=both)  # fmt: skip
    distance = np.arange(length) - np.arange(length)[:, None]
    half = count // 2 if both else count
    bucket = np.where(distance > 0, half, 0) if both else np.zeros_like(distance)
    away = np.abs(distance) if both else np.maximum(-distance, 0)
    exact = half // 2
    scaled = np.log(np.maximum(away, 1) / exact) / np.log(20 / exact) * (half - exact)
    far = np.minimum(exact + scaled.astype(np.int64), half - 1)
    bucket = bucket + np.where(away < exact, away, far)
    expected = table.reshape(heads_, count)[:, bucket]
    close = np.isclose(found[0], expected)
    assert close.mean() > 0.99  # a logarithm may fall on either side of a whole number


def test_gated_position_bias() -> None:
    """onnxruntime has none for processors: by its definition."""
    x, bias = floats(2, 3, WIDTH), floats(WIDTH, seed=1)
    positions, weight = floats(1, HEADS, 3, 3, seed=2), floats(SIZE, 8, seed=3)
    own, eco = floats(8, seed=4), floats(1, HEADS, 1, 1, seed=5)
    (found,) = run("GatedRelativePositionBias", [x, bias, positions, weight, own, eco],
                   num_heads=HEADS)  # fmt: skip
    gates = (heads(x + bias) @ weight + own).reshape(2, HEADS, 3, 2, 4).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-gates)), 2, -1)
    np.testing.assert_allclose(found, (u * (r * eco - 1) + 2) * positions, 1e-4, 1e-5)


def test_what_is_left_out_is_told() -> None:
    operands = [*STEP]
    model, _ = ml_model("DecoderMaskedMultiHeadAttention", operands, MS, num_heads=HEADS)
    with pytest.raises(UnsupportedModel, match="without a cache"):
        import_onnx(model)
