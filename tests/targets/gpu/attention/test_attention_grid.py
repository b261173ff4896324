"""Groups of causal attention, of which the longest begin first."""

from __future__ import annotations

import numpy as np
import pytest
from attention_programs import attention, feeds_of
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.targets.gpu.schedule import schedule_groups

SEEN = "select(ge(index(i - j):i64, 0), {} * 0.25, -inf)"


@pytest.mark.parametrize(("heads", "grid"), [(1, (1, 2, 4)), (2, (2, 2, 2)), (9, (4, 2))])
def test_heads_that_fit_go_together(
    heads: int, grid: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last axis of a grid is the one that is the next first."""
    monkeypatch.setattr(
        "modelcc.targets.gpu.attention.attention_grid.CACHE_BYTES", heads * 70 * (16 + 16) * 2
    )
    program = attention(4, 1, 70, 70, 16, 16, "f16", SEEN, "f16")
    scheduled = schedule_groups(program, TensorAttention(64, 64, "wgmma"))
    (function,) = scheduled.functions
    assert isinstance(function, Function)
    assert launch_extents(function)[0] == grid
    feeds = feeds_of(program)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    wanted = run_program(program, feeds, {})["y"]
    given = (one.astype(np.float32) for one in (found, wanted))
    np.testing.assert_allclose(*given, rtol=1e-2, atol=1e-2)
