"""Operators that fewer models have, against LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")

from flatbuffers import flexbuffers  # pyright: ignore[reportMissingImports]

import modelcc
from modelcc.frontends.tflite import import_tflite
from modelcc.ir.errors import ModelError, RunError
from modelcc.ir.types import Array
from tests.frontends.tflite.comparison import (
    assert_same,
    litert,
    litert_results,
    our_results,
    random_feeds,
)
from tests.frontends.tflite.files import Op, Subgraph, T, constant, model, one

RNG = np.random.default_rng(0)
F = "float32"
DUMPS: Any = flexbuffers.Dumps
WHOLE = np.arange(-32768, 32768, dtype=np.int16)


def f(*shape: int) -> T:
    return T(shape, F)


def i16(*shape: int, scale: float) -> T:
    return T(shape, "int16", scale)


def i8(*shape: int, scale: float, zero: int = 0) -> T:
    return T(shape, "int8", scale, zero)


def floats(*shape: int) -> T:
    return constant(RNG.uniform(-1, 1, shape), F)


@pytest.mark.parametrize("op", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2**-12, 2**-11, 3e-4, 1e-5, 2e-3])
def test_functions_of_all_16_bit_numbers(op: str, scale: float) -> None:
    tensors = [i16(WHOLE.size, scale=scale), i16(WHOLE.size, scale=2**-15)]
    assert_same(one(op, tensors), [WHOLE])


@pytest.mark.parametrize(("scale", "beta"), [(2**-12, 1.0), (2e-3, 1.0), (3e-4, 0.5)])
def test_softmax_of_16_bit_numbers(scale: float, beta: float) -> None:
    tensors = [i16(20, 7, scale=scale), i16(20, 7, scale=2**-15)]
    assert_same(one("SOFTMAX", tensors, "SoftmaxOptions", Beta=beta))


def product(kind: str, *tensors: T, **options: Any) -> bytes:
    return one(kind, list(tensors), {"BATCH_MATMUL": "BatchMatMulOptions"}[kind], **options)


VOLUME = {f"Stride{a}": 2 for a in "DHW"} | {f"Dilation{a}Factor": 1 for a in "DHW"}
CASES = {
    "product i8": product(
        "BATCH_MATMUL",
        i8(2, 3, 5, scale=0.02, zero=4),
        i8(2, 5, 4, scale=0.03, zero=-7),
        i8(2, 3, 4, scale=0.05, zero=9),
    ),
    "product i8 transposed": product(
        "BATCH_MATMUL",
        i8(3, 5, scale=0.02, zero=4),
        i8(2, 4, 5, scale=0.03),
        i8(2, 3, 4, scale=0.1),
        AdjY=True,
    ),
    "product i16": product(
        "BATCH_MATMUL",
        i16(2, 3, 5, scale=0.002),
        i16(2, 5, 4, scale=0.001),
        i16(2, 3, 4, scale=0.01),
    ),
    "gather in batches": one(
        "GATHER",
        [f(2, 3, 4, 5), constant([[3, 1, 0], [2, 2, 1]]), f(2, 3, 3, 5)],
        "GatherOptions",
        Axis=2,
        BatchDims=1,
    ),
    "convolution of volumes": one(
        "CONV_3D",
        [f(2, 5, 6, 7, 3), floats(3, 2, 3, 3, 4), floats(4), f(2, 3, 3, 4, 4)],
        "Conv3DOptions",
        **VOLUME,
    ),
    "transposed convolution of volumes": one(
        "CONV_3D_TRANSPOSE",
        [constant([1, 4, 6, 5, 3]), floats(3, 2, 3, 3, 2), f(1, 2, 3, 3, 2), f(1, 4, 6, 5, 3)],
        "Conv3DOptions",
        **VOLUME,
    ),
    "norm of neighbours": one(
        "LOCAL_RESPONSE_NORMALIZATION",
        [f(1, 3, 2, 7), f(1, 3, 2, 7)],
        "LocalResponseNormalizationOptions",
        Radius=2,
        Bias=1.5,
        Alpha=0.3,
        Beta=0.6,
    ),
    "diagonals": one("MATRIX_DIAG", [f(2, 3), f(2, 3, 3)], "MatrixDiagOptions"),
    "other diagonals": one("MATRIX_SET_DIAG", [f(2, 3, 3), f(2, 3), f(2, 3, 3)]),
    "sparse": one(
        "SPARSE_TO_DENSE",
        [constant([[0, 1], [2, 3]]), constant([3, 4]), f(2), constant(0.5, F), f(3, 4)],
        "SparseToDenseOptions",
    ),
    "sparse line": one(
        "SPARSE_TO_DENSE",
        [constant([1, 3]), constant([5]), constant(2.0, F), constant(-1.0, F), f(5)],
        "SparseToDenseOptions",
    ),
    "reversed sequences": one(
        "REVERSE_SEQUENCE",
        [f(4, 3, 2), constant([3, 0, 2]), f(4, 3, 2)],
        "ReverseSequenceOptions",
        SeqDim=0,
        BatchDim=1,
    ),
    "shape of both": one(
        "BROADCAST_ARGS", [constant([3, 1]), constant([4, 1, 5]), T((3,), "int32")]
    ),
    **{
        f"segments in any order, {kind}": one(
            f"UNSORTED_SEGMENT_{kind}",
            [f(5, 2), constant([3, -1, 0, 3, 0]), constant(5), f(5, 2)],
        )
        for kind in ("SUM", "MAX", "MIN", "PROD")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_the_reference_kernels_compute(name: str) -> None:
    assert_same(CASES[name])


def test_sums_of_segments() -> None:  # LiteRT's reference kernels have none
    data = one("SEGMENT_SUM", [f(4, 2), T((4,), "int32"), f(3, 2)])
    rows = RNG.uniform(-1, 1, (4, 2)).astype(np.float32)
    (found,) = our_results(data, [rows, np.array([0, 0, 2, 2], np.int32)])
    np.testing.assert_allclose(found, [rows[0] + rows[1], [0, 0], rows[2] + rows[3]], 1e-6)


def test_different_elements() -> None:
    tensors = [T((7,), F), T((0,), F), T((7,), "int32")]
    op = Op("UNIQUE", [0], [1, 2], "UniqueOptions", {"IdxOutType": 2})
    data = model([Subgraph(tensors, [0], [1, 2], [op])])
    assert_same(data, [np.array([3, 1, 3, 2, 1, 1, 5], np.float32)])


def boxes(count: int) -> Array:
    low = RNG.uniform(0, 1, (count, 2))
    return np.concatenate([low, low + RNG.uniform(0.1, 0.6, (count, 2))], 1).astype(np.float32)


@pytest.mark.parametrize("version", [4, 5])
def test_boxes_that_overlap_a_better_one_go(version: int) -> None:
    given = [f(12, 4), f(12), constant(6), constant(0.4, F), constant(0.2, F)]
    results = [T((6,), "int32"), T((), "int32")]
    if version == 5:
        given.append(constant(0.0, F))
        results.insert(1, f(6))
    tensors = [*given, *results]
    ends = list(range(len(given))), list(range(len(given), len(tensors)))
    op = Op(f"NON_MAX_SUPPRESSION_V{version}", *ends)
    data = model([Subgraph(tensors, [0, 1], ends[1], [op])])
    assert_same(data, [boxes(12), RNG.uniform(0, 1, 12).astype(np.float32)])


def test_the_last_step_of_an_ssd() -> None:
    options = {
        "max_detections": 5, "max_classes_per_detection": 1, "detections_per_class": 100,
        "use_regular_nms": False, "nms_score_threshold": 0.05, "nms_iou_threshold": 0.4,
        "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
    }  # fmt: skip
    low_high = boxes(9)
    size = low_high[:, 2:] - low_high[:, :2]
    anchors = np.concatenate([low_high[:, :2] + size / 2, size], 1)
    tensors = [f(1, 9, 4), f(1, 9, 4), constant(anchors, F),
               f(1, 5, 4), f(1, 5), f(1, 5), f(1)]  # fmt: skip
    name = "TFLite_Detection_PostProcess"
    op = Op(name, [0, 1, 2], [3, 4, 5, 6], custom=bytes(DUMPS(options)))
    data = model([Subgraph(tensors, [0, 1], [3, 4, 5, 6], [op])])
    encodings = RNG.uniform(-1, 1, (1, 9, 4)).astype(np.float32)
    assert_same(data, [encodings, RNG.uniform(0, 1, (1, 9, 4)).astype(np.float32)])


@pytest.mark.parametrize("function", ["COMPLEX_ABS", "REAL", "IMAG"])
def test_spectra(function: str) -> None:
    tensors = [f(2, 3, 20), constant([4, 16]), T((2, 4, 9), "complex64"), constant([8, 9]),
               T((8, 9), "complex64"), f(8, 9)]  # fmt: skip
    operators = [
        Op("RFFT2D", [0, 1], [2], "Rfft2dOptions"),
        Op("RESHAPE", [2, 3], [4]),
        Op(function, [4], [5]),
    ]
    data = model([Subgraph(tensors, [0], [5], operators)])
    assert_same(data)


def recurrent(op: str, kind: str, operands: list[T | None], *results: T, **options: Any) -> bytes:
    """A model of one operator, where None is an absent operand."""
    tensors = [t for t in operands if t is not None]
    places = iter(range(len(tensors)))
    inputs = [-1 if t is None else next(places) for t in operands]
    outputs = list(range(len(tensors), len(tensors) + len(results)))
    call = Op(op, inputs, outputs, kind, options)
    return model([Subgraph([*tensors, *results], [0], outputs, [call])])


def layer(width: int, units: int) -> list[T | None]:
    state = T((2, units), F, variable=True)
    return [floats(units, width), floats(units, units), floats(units), state]


def gates(width: int, cells: int) -> list[T | None]:
    """The operands 1 to 17 of an LSTM, and its two states."""
    weights = [floats(cells, n) for n in (width,) * 4 + (cells,) * 4]
    peepholes = [floats(cells) for _ in range(3)]
    return [*weights, *peepholes, *(floats(cells) for _ in range(4)), None, None]


def bytes_of(operands: list[T | None]) -> list[T | None]:
    """Matrices and peepholes as bytes in scales of their own."""
    return [
        constant(RNG.integers(-127, 128, t.shape), "int8", scale=0.003 + 0.001 * n)
        if t is not None and n < 11
        else t
        for n, t in enumerate(operands)
    ]


def states(cells: int) -> list[T | None]:
    return [T((2, cells), F, variable=True) for _ in range(2)]


TANH = {"FusedActivationFunction": 4}
SEQUENCE = [f(2, 5, 3)]
RECURRENT = {
    "rnn": recurrent("RNN", "RNNOptions", [f(2, 3), *layer(3, 4)], f(2, 4), **TANH),
    "rnn of a sequence": recurrent(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        "SequenceRNNOptions",
        [*SEQUENCE, *layer(3, 4)],
        f(2, 5, 4),
        FusedActivationFunction=1,
    ),
    "rnn both ways": recurrent(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "BidirectionalSequenceRNNOptions",
        [*SEQUENCE, *layer(3, 4), *layer(3, 2), None, None, None],
        f(2, 5, 4),
        f(2, 5, 2),
        **TANH,
    ),
    "lstm of a step": recurrent(
        "LSTM", "LSTMOptions", [f(2, 3), *gates(3, 4), *states(4)], f(2, 4), **TANH
    ),
    **{
        f"hybrid lstm, {kind}": recurrent(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            "UnidirectionalSequenceLSTMOptions",
            [*SEQUENCE, *bytes_of(gates(3, 4)), *states(4), *[None] * 4],
            f(2, 5, 4),
            AsymmetricQuantizeInputs=kind == "asymmetric",
            **TANH,
        )
        for kind in ("symmetric", "asymmetric")
    },
    "lstm both ways": recurrent(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BidirectionalSequenceLSTMOptions",
        [*SEQUENCE, *gates(3, 4), *gates(3, 4), *states(4), *states(4), *[None] * 9],
        f(2, 5, 4),
        f(2, 5, 4),
        TimeMajor=False,
        **TANH,
    ),
    "lstm both ways, side by side": recurrent(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BidirectionalSequenceLSTMOptions",
        [f(5, 2, 3), *gates(3, 4), *gates(3, 4), *states(4), *states(4), *[None] * 9],
        f(5, 2, 8),
        MergeOutputs=True,
        **TANH,
    ),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_keep_their_states(name: str) -> None:
    data = RECURRENT[name]
    net, ready = modelcc.compile(data, cache=None), litert(data)
    for seed in range(2):
        feeds = random_feeds(data, seed)
        found = net(*feeds)
        results = found if isinstance(found, tuple) else (found,)
        for own, right in zip(results, litert_results(ready, feeds), strict=True):
            np.testing.assert_allclose(own, right, 1e-5, 1e-5)


def test_the_file_says_the_shape_that_a_transposed_convolution_is_given() -> None:
    tensors = [T((4,), "int32"), floats(3, 3, 3, 2), f(1, 4, 4, 2), f(1, 8, 8, 3)]
    data = one("TRANSPOSE_CONV", tensors, "TransposeConvOptions", StrideH=2, StrideW=2)
    image = RNG.uniform(-1, 1, (1, 4, 4, 2)).astype(np.float32)
    net = modelcc.compile(data, cache=None)
    ready = litert(data)
    (wanted,) = litert_results(ready, [np.array([1, 8, 8, 3], np.int32), image])
    np.testing.assert_allclose(net(np.array([1, 8, 8, 3], np.int32), image), wanted, 1e-5, 1e-5)
    with pytest.raises(RunError, match="is 9, but must be 8"):
        net(np.array([1, 9, 8, 3], np.int32), image)


def test_options_that_are_no_numbers_are_refused() -> None:
    tensors = [f(1, 9, 4), f(1, 9, 4), floats(9, 4), f(1, 5, 4), f(1, 5), f(1, 5), f(1)]
    for custom in (b"", b"abc", bytes(DUMPS({"max_detections": "5", "num_classes": 3}))):
        op = Op("TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=custom)
        with pytest.raises(ModelError, match="option"):
            import_tflite(model([Subgraph(tensors, [0, 1], [3, 4, 5, 6], [op])]))


def test_a_radius_beyond_all_channels_takes_no_longer() -> None:
    options = {"Radius": 2**30, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.6}
    tensors = [f(1, 2, 2, 3), f(1, 2, 2, 3)]
    kind = "LocalResponseNormalizationOptions"
    assert import_tflite(one("LOCAL_RESPONSE_NORMALIZATION", tensors, kind, **options))
