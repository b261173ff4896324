"""Products of matrices, reductions, normalisations and recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, TensorProto, helper

from benchmarks.operators.case import Case, one, weights


def _products() -> Iterator[Case]:
    for m, n, k in (
        (128, 128, 128), (127, 129, 131), (512, 512, 512), (1, 1000, 2048), (1, 512, 512),
        (64, 1, 512), (197, 384, 384), (10, 10, 10), (3, 1000, 77), (33, 17, 4096), (1024, 8, 64),
        (2000, 3, 5),
    ):  # fmt: skip
        scale = np.float32(1 / np.sqrt(k))
        name = f"{m}x{n}x{k}"
        yield one("gemm", f"weights_{name}", "MatMul", [(m, k)], [weights((k, n)) * scale])
        yield one("gemm", f"inputs_{name}", "MatMul", [(m, k), (k, n)])
    yield one("gemm", "ta_200", "Gemm", [(200, 200), (200, 200)], transA=1)
    yield one("gemm", "tb_200", "Gemm", [(200, 200), (200, 200)], transB=1)
    yield one("gemm", "batch12_128_64", "MatMul", [(12, 128, 64), (12, 64, 128)])
    yield one("gemm", "batch12_49_32", "MatMul", [(12, 49, 32), (12, 32, 49)])
    yield one("gemm", "batch100_7_9", "MatMul", [(100, 7, 9), (100, 9, 5)])
    yield one("gemm", "broadcast_8_64", "MatMul", [(8, 64, 64)], [weights((64, 64))])
    yield one("gemm", "vector_512_512", "MatMul", [(512,), (512, 512)])
    yield one(
        "gemm", "einsum_bhid_bhjd", "Einsum", [(1, 8, 64, 32)] * 2, equation="bhid,bhjd->bhij"
    )
    yield one("gemm", "einsum_bchw_cd", "Einsum", [(1, 64, 28, 28), (64, 32)],
              equation="bchw,cd->bdhw")  # fmt: skip


def _norms() -> Iterator[Case]:
    for shape in ((128, 768), (12, 128, 128), (1, 1000), (1000, 10), (64, 50)):
        yield one("norm", f"softmax_last_{'x'.join(map(str, shape))}", "Softmax", [shape], axis=-1)
    yield one("norm", "softmax_inner_1x21x64x64", "Softmax", [(1, 21, 64, 64)], axis=1)
    yield one("norm", "log_softmax_128x768", "LogSoftmax", [(128, 768)], axis=-1)
    for rows, width in ((128, 768), (3136, 96), (197, 100)):
        parts = [weights((width,)), weights((width,))]
        name = f"layer_{rows}x{width}"
        yield one("norm", name, "LayerNormalization", [(1, rows, width)], parts, axis=-1)
    yield one("norm", "layer_nchw", "LayerNormalization", [(1, 32, 28, 28)],
              [weights((32, 28, 28))] * 2, axis=1)  # fmt: skip
    image = (1, 64, 56, 56)
    statistics = [weights((64,)), weights((64,)), weights((64,)), np.abs(weights((64,))) + 1]
    yield one("norm", "batch_64_56", "BatchNormalization", [image], statistics)
    yield one("norm", "instance_64_56", "InstanceNormalization", [image], statistics[:2])
    yield one("norm", "lp_last", "LpNormalization", [(128, 768)], axis=-1)
    yield one("norm", "lrn_64_28", "LRN", [(1, 64, 28, 28)], size=5)
    yield one("norm", "mvn", "MeanVarianceNormalization", [(2, 64, 28, 28)], axes=[0, 2, 3])
    yield _group_norm()


def _group_norm() -> Case:
    """As exported: instance normalisation of groups, then scale and shift."""
    nodes: list[NodeProto] = [
        helper.make_node("Reshape", ["x0", "folded"], ["a"]),
        helper.make_node("InstanceNormalization", ["a", "ones", "zeros"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("Mul", ["c", "scale"], ["d"]),
        helper.make_node("Add", ["d", "shift"], ["y"]),
    ]
    constants = {
        "folded": np.array([1, 32, -1], np.int64),
        "shape": np.array([1, 64, 56, 56], np.int64),
        "ones": np.ones(32, np.float32),
        "zeros": np.zeros(32, np.float32),
        "scale": weights((64, 1, 1)),
        "shift": weights((64, 1, 1)),
    }
    return Case("norm", "group_64_56", ((1, 64, 56, 56),), tuple(nodes), constants)


def _reductions() -> Iterator[Case]:
    shape = (32, 64, 96)
    for axis in range(3):
        axes = [np.array([axis], np.int64)]
        for operator in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"):
            yield one("reduce", f"{operator[6:].lower()}_axis{axis}", operator, [shape], axes)
    yield one("reduce", "sum_axes02", "ReduceSum", [shape], [np.array([0, 2], np.int64)])
    yield one("reduce", "sum_all", "ReduceSum", [shape])
    yield one("reduce", "mean_nchw", "ReduceMean", [(1, 64, 56, 56)], [np.array([2, 3], np.int64)])
    yield one("reduce", "logsumexp_last", "ReduceLogSumExp", [shape], [np.array([2], np.int64)])
    yield one("reduce", "prod_last", "ReduceProd", [shape], [np.array([2], np.int64)])
    for axis in (0, 1, 2):
        yield one(
            "reduce", f"argmax_axis{axis}", "ArgMax", [shape], (), TensorProto.INT64, axis=axis
        )
    yield one("reduce", "argmin_1000", "ArgMin", [(8, 1000)], (), TensorProto.INT64, axis=1)
    for axis in (0, 1, 2):
        yield one("reduce", f"cumsum_axis{axis}", "CumSum", [shape], [np.array(axis, np.int64)])
    for rows, width, k in ((1, 1000, 5), (100, 80, 3), (1, 8400, 300), (64, 64, 64)):
        yield one("reduce", f"topk_{rows}x{width}_{k}", "TopK", [(rows, width)],
                  [np.array([k], np.int64)], outputs=2, axis=-1)  # fmt: skip


def _recurrent() -> Iterator[Case]:
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, width, hidden in ((64, 1, 128, 128), (20, 8, 40, 100), (10, 1, 16, 10)):
            scale = np.float32(0.1)
            constants = [
                weights((1, gates * hidden, width)) * scale,
                weights((1, gates * hidden, hidden)) * scale,
                weights((1, 2 * gates * hidden)) * scale,
            ]
            name = f"{operator.lower()}_{steps}x{batch}x{width}_{hidden}"
            shape = (steps, batch, width)
            yield one("recurrent", name, operator, [shape], constants, hidden_size=hidden)


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _products()
    yield from _norms()
    yield from _reductions()
    yield from _recurrent()
