"""Winograd convolution as shaders on a device."""

from __future__ import annotations

import pytest
from kernel_runs import run_scheduled
from winograd_layers import BOUNDS, LAYERS, Always, Layer, assert_near, images_of

from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.gpu.passes.winograd import GroupWinograd
from modelcc.targets.gpu.schedule import schedule_groups

pytest.importorskip("wgpu")
webgpu_kernels = pytest.importorskip("webgpu_kernels")

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
def test_shaders_compute_what_convolutions_mean(layer: Layer, m: int) -> None:
    program = schedule_groups(GroupWinograd(Always(PROCESSOR, m=m))(layer.program))
    tensors, images = layer.tensors(images_of(layer)), {"n": images_of(layer)}
    run = webgpu_kernels.by_webgpu(program.functions)
    found = run_scheduled(program, run, tensors, images)
    for name, wanted in layer.expected(tensors).items():
        assert_near(found[name], wanted, BOUNDS[m])
