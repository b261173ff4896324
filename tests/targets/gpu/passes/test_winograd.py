"""Winograd convolution by groups of threads, against f64; the interpreter watches them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled
from winograd_layers import BOUNDS, LAYERS, Always, Layer, assert_near, images_of

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Let, Load
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.rounding import winograd_rounding
from modelcc.schedule.group_schedule import GroupArrays, GroupSchedule, Pointwise
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.machine import H100, PROCESSOR, GpuModel
from modelcc.targets.gpu.passes.winograd import GroupWinograd
from modelcc.targets.gpu.schedule import schedule_groups


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
def test_tensor_level_keeps_its_meaning(layer: Layer, m: int) -> None:
    program = GroupWinograd(Always(H100, m=m))(layer.program)
    verify_tensor_program(program)
    assert len(program.items) == 3
    tensors = layer.tensors(images_of(layer))
    found = run_program(program, tensors, {"n": images_of(layer)})
    for name, wanted in layer.expected(tensors).items():
        assert_near(found[name], wanted, BOUNDS[m])


@pytest.mark.parametrize("machine", [H100, PROCESSOR], ids=lambda m: m.name)
@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
def test_groups_compute_what_convolutions_mean(layer: Layer, m: int, machine: GpuModel) -> None:
    """In three launches, however many kinds of tiles there are, for any number of images."""
    program = schedule_groups(GroupWinograd(Always(machine, m=m))(layer.program), machine=machine)
    assert len(program.steps) == 3
    for images in {images_of(layer), 1 if layer.images == "n" else images_of(layer)}:
        tensors = layer.tensors(images)
        found = run_scheduled(program, interpreted(program), tensors, {"n": images})
        for name, wanted in layer.expected(tensors).items():
            assert_near(found[name], wanted, BOUNDS[m])


def transforms(layer: Layer, m: int) -> list[TensorProgram]:
    """The kernels before and after the product, each by itself."""
    program = GroupWinograd(Always(H100, m=m))(layer.program)
    found = (k for k in program.items if isinstance(k, Kernel) and k.name != "winograd_product")
    return [
        replace(program, inputs=k.inputs, outputs=k.outputs, constants={}).with_items((k,))
        for k in found
    ]


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("threads", [32, 96])
def test_neighbours_are_vectors_of_channels(lanes: int, threads: int) -> None:
    layer = LAYERS["edges"]
    for program in transforms(layer, 2):
        scheduled = schedule_groups(program, GroupArrays(threads, lanes), H100)
        rng = np.random.default_rng(5)
        types = {n: program.types[n] for n in program.inputs}
        shapes = {n: [evaluate(e, {"n": 2}) for e in t.shape] for n, t in types.items()}
        tensors = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        wanted = run_program(program, tensors, {"n": 2})
        found = run_scheduled(scheduled, interpreted(scheduled), tensors, {"n": 2})
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)
        (function,) = scheduled.functions
        loads = [s.value for s in statements(function.body) if isinstance(s, Let)]
        wide = {load.lanes for load in loads if isinstance(load, Load)}
        assert max(wide) == lanes


@pytest.mark.parametrize(
    "schedule",
    [GroupArrays(0), GroupArrays(32, 3), GroupArrays(32, 8), Pointwise(32)],
    ids=str,
)
def test_schedules_that_do_not_fit_are_refused(schedule: GroupSchedule) -> None:
    for program in transforms(LAYERS["odd channels"], 4):
        with pytest.raises(ScheduleError):
            schedule_groups(program, schedule, H100)


def test_an_edge_in_a_vector_is_refused() -> None:
    """Neighbours are tiles where channels are second."""
    for program in transforms(LAYERS["channels second, whole tiles"], 4):
        with pytest.raises(ScheduleError, match="neighbours"):
            schedule_groups(program, GroupArrays(32, 2), H100)


def test_narrower_images_within_a_tensor_keep_their_border() -> None:
    """Columns from the fifth on are in the tensor, and not in the image."""
    guard = "[0 <= p + a - 1, p + a - 1 < 7, 0 <= q + b - 1, q + b - 1 < 5]"
    layer = replace(LAYERS["edges"], guarded=guard)
    before = layer.program
    after = GroupWinograd(Always(H100))(before)
    tensors = layer.tensors(2)
    wanted, found = (run_program(p, tensors, {"n": 2}) for p in (before, after))
    assert_near(found["y"], wanted["y"], BOUNDS[4])


def test_the_last_kernel_says_how_it_rounds() -> None:
    layer = LAYERS["edges"]
    program = GroupWinograd(Always(H100))(layer.program)
    kernels = [k for k in program.items if isinstance(k, Kernel)]
    assert [k.name for k in kernels] == ["winograd_input", "winograd_product", "Conv_winograd"]
    assert [k.rounding for k in kernels] == [1, 1, winograd_rounding(4, layer.inputs)]
