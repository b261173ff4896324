"""Which convolutions GPUs compute by Winograd's algorithms, and that options switch them off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from winograd_layers import Layer

from modelcc.driver import target_of
from modelcc.ir.index import Range
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.options import Options
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.passes.winograd import GroupWinograd, planes_of
from modelcc.targets.gpu.passes.winograd_cost import GroupWinogradCost

H100 = find_chip("sm_90a").gpu

RESNET = ((56, 64), (28, 128), (14, 256), (7, 512))
"""Images and channels of ResNet-50's convolutions."""


def layer_of(size: int, channels: int, images: str) -> Layer:
    return Layer((size, size), channels, channels, images=images)


def seconds(program: TensorProgram, machine: GpuModel) -> dict[int, float]:
    """By sides of tiles; 0: directly."""
    (kernel,) = (item for item in program.items if isinstance(item, Kernel))
    estimate = GroupWinogradCost(machine).of(program)
    found = {m: planes_of(kernel, program, m) for m in (2, 4)}
    times = {m: estimate.winograd(way) for m, way in found.items() if way is not None}
    times[0] = estimate.direct(kernel)
    return {m: time for m, time in times.items() if time is not None}


def is_rewritten(program: TensorProgram) -> bool:
    return len(GroupWinograd(GroupWinogradCost(H100))(program).items) == 3


@pytest.mark.parametrize(("size", "channels"), RESNET)
def test_large_batches_pay_for_transforms_and_single_images_do_not(
    size: int, channels: int
) -> None:
    many, one = (layer_of(size, channels, n).program for n in ("32", "1"))
    assert is_rewritten(many) and not is_rewritten(one)
    times = seconds(many, H100)
    assert times[4] < times[2] < times[0] < 4 * times[4]


def test_a_named_number_of_images_is_the_least_that_it_may_be() -> None:
    program = layer_of(28, 128, "n").program
    assert not is_rewritten(program)
    known = replace(program, dims={"n": Range(32, 64)})
    assert is_rewritten(known)
    assert seconds(known, H100) == seconds(layer_of(28, 128, "32").program, H100)


def test_slow_memory_makes_transforms_dear() -> None:
    program = layer_of(56, 64, "32").program
    slow = replace(H100, bandwidth=H100.bandwidth / 8)
    assert seconds(program, slow)[4] > 2 * seconds(program, H100)[4]
    assert seconds(program, slow)[0] == seconds(program, H100)[0]


def test_few_channels_are_convolved_directly() -> None:
    assert not is_rewritten(Layer((56, 56), 3, 64, images="32").program)


def test_what_runs_once_is_estimated_once() -> None:
    program = layer_of(14, 256, "32").program
    (kernel,) = (item for item in program.items if isinstance(item, Kernel))
    estimate = GroupWinogradCost(H100).of(program)
    first = estimate.direct(kernel)
    assert estimate.direct(replace(kernel, name="other")) == first
    assert len(estimate.known) == 1


def passes(**options: object) -> set[str]:
    """Names of what is done to kernels for a GPU of NVIDIA's."""
    target = target_of(Options(target="cuda:sm_90a", **options))  # type: ignore[arg-type]
    return {type(step).__name__ for step in target.tensor_passes().kernels}


@pytest.mark.parametrize(
    "options",
    [
        {"winograd": False},
        {"accuracy": "strict"},
        {"optimize": 0},
        {"precision": "tf32"},
        {"kernels": "library"},
    ],
    ids=str,
)
def test_options_leave_it_out(options: dict[str, object]) -> None:
    assert "GroupWinograd" in passes() & passes(precision="tf32x3")
    assert "GroupWinograd" not in passes(**options)
