"""onnxruntime's operators on tokens, integers, signals and weights of few bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import modelcc
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.types import Array
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import floats

MS = "com.microsoft"
Form = tuple[str, Sequence[Array | None], tuple[int, ...], dict[str, Any]]


def run(form: Form, outputs: int = 1, compare: bool = False) -> list[Array]:
    """What compiled code gives; some operands are constants."""
    op, operands, constants, attributes = form
    model, feeds = ml_model(op, operands, MS, 1, outputs, **attributes)
    for name in (f"x{i}" for i in constants):
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    left = [value for value in model.graph.input if value.name in feeds]
    del model.graph.input[:]
    model.graph.input.extend(left)
    if compare:
        assert_compiled_agrees(model, feeds, 1e-4, 1e-5)
        return []
    return list(modelcc.compile(model, threads=1, cache=None).run(feeds).values())


RNG = np.random.default_rng(3)
TOKENS = RNG.integers(0, 3, (2, 9))
IMAGE = floats(2, 3, 5, 6)
BOXES = np.array([[0.1, 0.2, 0.9, 0.7], [0.5, 0, 0, 1.2], [0, 0, 1, 1]], np.float32)
ORDER, CROP = np.array([1, 0, 1], np.int32), np.array([3, 4], np.int32)
WORDS = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [1, 2, 3, 4, 5]], np.int32)
PACKED, SCALES = RNG.integers(0, 256, 256, np.uint8), np.abs(floats(32, seed=4))
ANGLES = [floats(20, 6, seed=n) for n in (5, 6)]
PLACES = RNG.integers(0, 20, (3, 2, 4))


def bits(dtype: type) -> Array:
    return RNG.integers(0, 1 << 30, (2, 3)).astype(dtype)


FORMS: tuple[Form, ...] = (
    ("NGramRepeatBlock", [TOKENS, floats(2, 4)], (), {"ngram_size": 3}),
    ("NGramRepeatBlock", [TOKENS, floats(2, 4)], (), {"ngram_size": 1}),
    (
        "WordConvEmbedding",
        [WORDS, floats(7, 1, 3, 4), floats(7, seed=2), floats(6, 4, seed=3)],
        (),
        {},
    ),
    ("MatMulInteger16", [bits(np.int16), bits(np.int16).T.copy()], (), {}),
    ("MurmurHash3", [bits(np.int32)], (), {}),
    ("MurmurHash3", [bits(np.uint32)], (), {"seed": 42, "positive": 0}),
    ("MurmurHash3", [bits(np.int64) * 12345], (), {"seed": 7}),
    ("MurmurHash3", [floats(2, 3)], (), {}),
    ("MurmurHash3", [floats(2, 3).astype(np.float64)], (), {"positive": 0}),
    ("UnfoldTensor", [floats(2, 9, 3)], (), {"dim": 1, "size": 4, "step": 2}),
    ("UnfoldTensor", [floats(2, 9)], (), {"dim": -1, "size": 3}),
    ("CropAndResize", [IMAGE, BOXES, ORDER, CROP], (3,), {"extrapolation_value": 7.0}),
    ("CropAndResize", [IMAGE, BOXES, ORDER, np.array([1, 1], np.int32)], (3,), {}),
    ("CropAndResize", [IMAGE, BOXES[:1], ORDER[:1], CROP], (3,), {"mode": "nearest"}),
    (
        "ConvTransposeWithDynamicPads",
        [IMAGE, floats(3, 2, 3, 3, seed=1), np.array([1, 0, 1, 2]), floats(2)],
        (2,),
        {"strides": [2, 2]},
    ),
    ("MatMulBnb4", [floats(3, 32), PACKED, SCALES], (1, 2),
     {"K": 32, "N": 16, "block_size": 16, "quant_type": 1}),
    ("MatMulBnb4", [floats(3, 32), PACKED, SCALES], (1, 2),
     {"K": 32, "N": 16, "block_size": 16, "quant_type": 0}),
    ("MRotaryEmbedding", [floats(2, 4, 24), PLACES, *ANGLES], (),
     {"mrope_section": [2, 3, 1], "num_heads": 2}),
    (
        "MRotaryEmbedding",
        [floats(2, 3, 4, 16), PLACES, *ANGLES],
        (),
        {"mrope_section": [2, 2, 2], "mrope_layout": 1, "num_heads": 3,
         "rotary_embedding_dim": 12},
    ),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f[0])
def test_agrees_with_onnxruntime(form: Form) -> None:
    run(form, compare=True)


def test_padding_that_the_run_tells() -> None:
    operands = [IMAGE, floats(3, 2, 3, 3, seed=1), np.array([1, 0, 1, 2])]
    run(("ConvTransposeWithDynamicPads", operands, (), {"strides": [2, 2]}), compare=True)


def test_different_elements_as_they_come() -> None:
    x = np.array([2, 1, 1, 3, 4, 3], np.int64)
    model, feeds = ml_model("Unique", [x.astype(np.float32)], MS, outputs=3)
    assert_compiled_agrees(model, feeds)


GRAMS = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 5}
GRAM_TABLES = [np.array([3, 7, 11]), np.array([13, 17, 19, 23])]


@pytest.mark.parametrize("past", [None, np.array([[1, 2], [0, 4]])])
@pytest.mark.parametrize("segments", [None, np.array([[0] * 4 + [1] * 5, [0] * 9], np.int32)])
@pytest.mark.parametrize("resets", [0, 1])
def test_hashes_of_grams(past: Array | None, segments: Array | None, resets: int) -> None:
    offsets, end = np.array([0, 100, 200, 300]), np.array(2)
    operands = [TOKENS, *GRAM_TABLES, past, offsets, end, segments]
    run(("NGramHashMapping", operands, (), {**GRAMS, "reset_on_eos": resets}), 2, compare=True)


def test_hashes_of_grams_with_a_fixed_padding() -> None:
    run(("NGramHashMapping", [TOKENS, *GRAM_TABLES], (), GRAMS), 2, compare=True)


def test_blocks_of_columns() -> None:
    """onnxruntime's packer is not at hand: by the layout of its blocks, and its product."""
    x, columns, rows = floats(3, 64), 5, 64
    blocks = np.zeros((columns, 2, 21), np.uint8)
    scales = RNG.uniform(0.01, 0.02, (columns, 2)).astype(np.float32)
    blocks[..., :4] = scales[..., None].view(np.uint8)
    blocks[..., 4] = 7
    blocks[..., 5:] = RNG.integers(0, 256, (columns, 2, 16), np.uint8)
    codes = np.concatenate([blocks[..., 5:] & 15, blocks[..., 5:] >> 4], -1).astype(np.float32)
    whole = ((codes - 7) * scales[..., None]).reshape(columns, rows)
    operands = [x, blocks.reshape(-1), np.array([rows, columns])]
    (found,) = run(("MatMulFpQ4", operands, (1, 2), {"blk_quant_type": 1}))
    np.testing.assert_allclose(found, x @ whole.T, 1e-4, 1e-5)


# --- operators that onnxruntime has for other devices only: by their definitions


def test_integers() -> None:
    a, b = (RNG.integers(0, 256, (2, 3), np.uint8) for _ in range(2))
    zeros = [np.array(n, np.uint8) for n in (7, 130)]
    (found,) = run(("MulInteger", [a, zeros[0], b, zeros[1]], (), {}))
    wide = [x.astype(np.int32) for x in (a, b)]
    np.testing.assert_array_equal(found, (wide[0] - 7) * (wide[1] - 130))
    (plain,) = run(("MulInteger", [a.view(np.int8), None, b.view(np.int8)], (), {}))
    signed = [x.view(np.int8).astype(np.int32) for x in (a, b)]
    np.testing.assert_array_equal(plain, signed[0] * signed[1])
    (total,) = run(("ReduceSumInteger", [a], (), {"axes": [1], "keepdims": 0}))
    assert total.dtype == np.uint32
    np.testing.assert_array_equal(total, a.sum(1))


@pytest.mark.parametrize("length", [8, 30])
def test_real_transforms(length: int) -> None:
    x = floats(2, length)
    attributes = {"signal_ndim": 1, "onesided": 1, "normalized": 0}
    (half,) = run(("Rfft", [x], (), attributes))
    expected = np.fft.rfft(x)
    np.testing.assert_allclose(half[..., 0] + 1j * half[..., 1], expected, 1e-4, 1e-4)
    (back,) = run(("Irfft", [half], (), attributes))
    np.testing.assert_allclose(back, x, 1e-4, 1e-5)


def test_embedding() -> None:
    table, places = floats(7, 3), RNG.integers(0, 7, (2, 4))
    (found,) = run(("TorchEmbedding", [table, places], (), {}))
    np.testing.assert_array_equal(found, table[places])


def test_numbers_that_are_none() -> None:
    fine, nan, infinite = floats(3), np.array([1, np.nan]), np.array([np.inf, 2])
    nan, infinite = nan.astype(np.float32), infinite.astype(np.float16)
    cases = (
        ([fine, fine], {}, True),
        ([fine, nan], {}, False),
        ([infinite, fine], {}, False),
        ([fine, infinite], {"isnan_only": 1}, True),
        ([fine, nan], {"isinf_only": 1}, True),
        ([infinite], {"isinf_only": 1}, False),
    )
    for operands, attributes, expected in cases:
        (found,) = run(("IsAllFinite", list(operands), (), attributes))
        assert found.shape == () and bool(found) == expected


def test_rotation_of_gemma() -> None:
    emb, parts = floats(2, 5, 4), [floats(2, 3, 5, 4, seed=n).astype(np.float16) for n in range(4)]
    found = run(("GemmaRotaryEmbedding", [emb, *parts], (), {}), 2)
    cos, sin = (f(emb)[:, None].astype(np.float16) for f in (np.cos, np.sin))
    for result, (x, turned) in zip(found, (parts[:2], parts[2:]), strict=True):
        np.testing.assert_allclose(result, x * cos + turned * sin, 1e-2, 1e-2)


def test_dropout() -> None:
    x, bias, residual = floats(5, 7), floats(7, seed=1), floats(5, 7, seed=2)
    expected = x + bias + residual
    y, mask = run(("BiasDropout", [x, bias, residual], (), {}), 2)
    np.testing.assert_allclose(y, expected, 1e-6)
    assert mask.dtype == bool and mask.all()
    y, words = run(("BitmaskBiasDropout", [x, bias, residual], (), {}), 2)
    np.testing.assert_allclose(y, expected, 1e-6)
    assert words.dtype == np.uint32 and words.tolist() == [0xFFFFFFFF] * 2
    ratio, training = np.array(0.5, np.float32), np.array(True)
    y, words = run(("BitmaskDropout", [x, ratio, training], (1, 2), {"seed": 1}), 2)
    kept = np.unpackbits(words.view(np.uint8), bitorder="little")[:35].reshape(5, 7)
    assert 0 < kept.sum() < 35
    np.testing.assert_allclose(y, np.where(kept, x * 2, 0), 1e-6)


@pytest.mark.parametrize("skip", [False, True])
def test_layers_of_few_bits(skip: bool) -> None:
    """Each is the standard's norm, products of MatMulNBits, and an activation."""
    rows, block = 32, 16
    x, more, norm = floats(3, rows), floats(3, rows, seed=1), np.abs(floats(rows, seed=2))
    sizes = (8, 4, 4)
    layers = [
        (RNG.integers(0, 256, (n, 2, 8), np.uint8), np.abs(floats(n, 2, seed=n)) * 0.1, floats(n))
        for n in sizes
    ]
    total = x + more if skip else x
    normal = total / np.sqrt((total * total).mean(-1, keepdims=True) + 1e-5) * norm

    def product(layer: tuple[Array, Array, Array]) -> Array:
        weights, scales, bias = layer
        codes = np.stack([weights & 15, weights >> 4], -1).reshape(len(bias), 2, block)
        whole = (codes.astype(np.float32) - 8) * scales[..., None]
        return normal @ whole.reshape(len(bias), rows).T + bias

    given = [x, more if skip else None, norm]
    attributes = {"K": rows, "bits": 4, "block_size": block}
    three = [part.astype(a.dtype) for layer in layers for part, a in zip(layer, layer, strict=True)]
    constants = tuple(range(3, 12))
    found = run(("MatMulNBitsQkv", [*given, *three], constants, {**attributes, "Nq": 8, "Nkv": 4}),
                4)  # fmt: skip
    for result, layer in zip(found, layers, strict=False):
        np.testing.assert_allclose(result, product(layer), 1e-4, 1e-4)
    np.testing.assert_allclose(found[3], total, 1e-6)
    two = [part for layer in layers[1:] for part in layer]
    form = {**attributes, "N": 4, "activation": "silu"}
    y, own = run(("MatMulNBitsMlp", [*given, *two], tuple(range(3, 9)), form), 2)
    gate = product(layers[1])
    np.testing.assert_allclose(y, gate / (1 + np.exp(-gate)) * product(layers[2]), 1e-4, 1e-4)
    np.testing.assert_allclose(own, total, 1e-6)


@pytest.mark.parametrize(
    ("op", "reason"),
    [("EPContext", "another compiler"), ("Tokenizer", "tokenise"), ("BeamSearch", "around it")],
)
def test_why_an_operator_is_refused(op: str, reason: str) -> None:
    model, _ = ml_model(op, [floats(2, 3)], MS)
    with pytest.raises(UnsupportedModel, match=reason):
        import_onnx(model)
