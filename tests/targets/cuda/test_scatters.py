"""Models that add rows at places from memory run as a driver of NVIDIA's would run them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from ptx_emulator.driver import PtxDriver
from ptx_emulator.kernels import emulated
from scatters import Updates

from modelcc.driver import compile_model
from modelcc.ir.types import DTYPES
from modelcc.ops.runtime_index import Combination
from modelcc.options import Options
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.errors import RunError
from modelcc.runtime.session import Session
from modelcc.schedule.group_schedule import GroupScatter, ListedScatter
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.schedule import schedule_groups

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")

COUNT, WIDTH = 1024, 16


def rows_added(rows: int) -> onnx.ModelProto:
    """``COUNT`` rows added to a table."""
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], name="table", reduction="add")
    shapes = {"x": [rows, WIDTH], "i": [COUNT, 1], "u": [COUNT, WIDTH], "y": [rows, WIDTH]}
    x, i, u, y = (
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name == "i" else TensorProto.FLOAT, shape
        )
        for name, shape in shapes.items()
    )
    graph = helper.make_graph([node], "g", [x, i, u], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("rows", [3, 900])
def test_rows_are_added_in_the_same_order_each_time(rows: int) -> None:
    """In parts for few places, by lists for many; an index out of range is named, and the next run
    knows nothing of it."""
    artifact = compile_model(rows_added(rows), Options(target="cuda:sm_90a")).artifact
    session = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(PtxDriver(), 0)))
    rng = np.random.default_rng(1)
    x, u = (rng.standard_normal((n, WIDTH)).astype(np.float32) for n in (rows, COUNT))
    places = rng.integers(-rows, rows, (COUNT, 1))
    feeds = {"x": x, "i": places, "u": u}
    wanted = x.astype(np.float64)
    np.add.at(wanted, places[:, 0], u)
    found = session.run(feeds)["y"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    wrong = places.copy()
    wrong[-5] = rows
    message = f"table: index {rows} is outside of -{rows} … {rows - 1}"
    with pytest.raises(RunError, match=message):
        session.run({**feeds, "i": wrong})
    np.testing.assert_array_equal(session.run(feeds)["y"], found)


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [("bool", "none"), ("u8", "add"), ("f16", "max"), ("bf16", "add"), ("i64", "min"),
     ("f64", "mul")],
)  # fmt: skip
def test_vectors_of_every_width(dtype: str, reduction: Combination) -> None:
    """The bits that owners make, who look at every update by themselves."""
    updates, chip = Updates((50, 64), (300, 1), None, reduction, dtype), CHIPS["sm_90a"]
    lanes = min(8, 16 // DTYPES[dtype].bytes)
    feeds = updates.feeds(1)
    found = [
        updates.run(program, emulated(program, chip), feeds)
        for schedule in (ListedScatter(128, 2, 64 // lanes, 2, lanes, 32), GroupScatter(64, 2))
        for program in (schedule_groups(updates.program(), schedule, chip.gpu),)
    ]
    np.testing.assert_array_equal(found[0], found[1])
