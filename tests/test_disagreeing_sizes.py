"""Inputs whose named sizes an operator needs to agree, and do not: refused, and no memory touched.

Inputs end where a page begins that nobody may read.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import modelcc
from modelcc.runtime.errors import RunError
from tests.test_hostile_indices import guarded

F = np.float32


def ones(*shape: int, dtype: type = F) -> np.ndarray:
    return np.ones(shape, dtype)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


@dataclass(frozen=True)
class Case:
    """A node, inputs that fit, and one of them that does not."""

    op: str
    feeds: tuple[np.ndarray, ...]
    wrong: tuple[int, np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    opset: int = 22
    numbers: tuple[tuple[int, int], ...] = ()
    """Inputs and their axes that keep their extents."""


CASES = (
    Case("BatchNormalization", (ones(2, 9, 5), *(ones(9),) * 4), (2, ones(2))),
    Case("BatchNormalization", (ones(2, 3, 5), *(ones(3),) * 4), (4, ones(9))),
    Case("InstanceNormalization", (ones(2, 9, 5), ones(9), ones(9)), (1, ones(1))),
    Case("LayerNormalization", (ones(2, 9), ones(9), ones(9)), (2, ones(4))),
    Case("Conv", (ones(1, 9, 5, 5), ones(4, 9, 3, 3), ones(4)), (0, ones(1, 2, 5, 5)),
         numbers=((1, 2), (1, 3))),
    Case("Conv", (ones(1, 9, 5, 5), ones(4, 9, 3, 3), ones(4)), (2, ones(1)),
         numbers=((1, 2), (1, 3))),
    Case("Gemm", (ones(3, 9), ones(9, 4)), (1, ones(2, 4))),
    Case("Einsum", (ones(3, 9), ones(9, 4)), (1, ones(2, 4)), {"equation": "ij,jk->ik"}),
    Case("GatherElements", (ones(4, 900), zeros(3, 900)), (0, ones(4, 1))),
    Case("ScatterElements", (ones(4, 900), zeros(3, 900), ones(3, 900)), (2, ones(3, 1))),
    Case("ScatterND", (ones(4, 900), zeros(3, 1), ones(3, 900)), (2, ones(1, 900)),
         numbers=((1, 1),)),
    Case("QuantizeLinear", (ones(2, 900), ones(900)), (1, ones(2)), {"axis": 1}),
    Case("DequantizeLinear", (ones(2, 900, dtype=np.int8), ones(900)), (1, ones(2)), {"axis": 1}),
    Case("ReverseSequence", (ones(5, 900), zeros(900)), (1, zeros(3))),
    Case("RoiAlign", (ones(1, 1, 5, 5), ones(900, 4), zeros(900)), (2, zeros(3)), opset=16,
         numbers=((0, 1),)),
    Case("MaxUnpool", (ones(1, 1, 30, 30), zeros(1, 1, 30, 30)), (1, zeros(1, 1, 30, 2)),
         {"kernel_shape": [2, 2]}),
    Case("NegativeLogLikelihoodLoss", (ones(900, 3), zeros(900)), (0, ones(2, 3))),
    # A tensor of given extents in loops over a named one, which are empty where the two agree.
    Case("NegativeLogLikelihoodLoss", (ones(3, 5, 2), zeros(3, 2)), (1, zeros(900, 2)),
         numbers=((0, 0), (0, 1), (0, 2), (1, 1))),
    Case("RMSNormalization", (ones(2, 3, 5), ones(3, 5)), (0, ones(2, 3, 900)), {"axis": -2}, 23,
         ((0, 0), (0, 1), (1, 0), (1, 1))),
    Case("Pad", (ones(5, 3), np.array([0, 1, 0, 1])), (0, ones(5, 0)), {"mode": "edge"},
         numbers=((1, 0),)),
)  # fmt: skip


def model_of(case: Case) -> onnx.ModelProto:
    """The node, every extent of its inputs under a name of its own."""
    names = [f"in{n}" for n in range(len(case.feeds))]
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [
                extent if (n, axis) in case.numbers else f"{name}_{axis}"
                for axis, extent in enumerate(array.shape)
            ],
        )
        for n, (name, array) in enumerate(zip(names, case.feeds, strict=True))
    ]
    node = helper.make_node(case.op, names, ["y"], "the_node", **case.attributes)
    y = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    y.ClearField("type")
    graph = helper.make_graph([node], "g", inputs, [y])
    imports = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def disagreeing(case: Case) -> tuple[np.ndarray, ...]:
    which, array = case.wrong
    return (*case.feeds[:which], array, *case.feeds[which + 1 :])


def by_onnxruntime(case: Case, feeds: tuple[np.ndarray, ...]) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    model = model_of(case).SerializeToString()
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    (result,) = session.run(None, dict(zip(names, feeds, strict=True)))
    return result


@pytest.mark.share(2, "case", "target")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}{c.wrong[0]}")
@pytest.mark.parametrize("target", ["native", "c"])
def test_sizes_that_do_not_agree_are_refused(case: Case, target: str) -> None:
    net = modelcc.compile(model_of(case), target, threads=1, cache=None)
    right = net(*map(guarded, case.feeds))
    np.testing.assert_allclose(right, by_onnxruntime(case, case.feeds), rtol=1e-4, atol=1e-5)
    feeds = disagreeing(case)
    with pytest.raises(RunError, match=r"the_node.*: .* must be "):
        net(*map(guarded, feeds))
    np.testing.assert_array_equal(net(*map(guarded, case.feeds)), right)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}{c.wrong[0]}")
def test_onnxruntime_refuses_them_too(case: Case) -> None:
    with pytest.raises(Exception, match=r"."):
        by_onnxruntime(case, disagreeing(case))
