"""Bytes that results have in common with operands, compared with where the plan put them."""

from __future__ import annotations

from modelcc.report.memory_savings import IN_PLACE, memory_savings
from modelcc.report.report import report_from_json, report_of
from tests.embedded import embedded, keyword_spotter

IMAGE = 8 * 9 * 5


def test_depthwise_results_lie_over_rows_that_have_been_read() -> None:
    """Two images and all but a few rows are in the arena: the plan's size is what is left."""
    program = embedded(keyword_spotter(), "cortex-m4").program
    found = memory_savings(program, {})
    most = max(found, key=lambda one: one.bytes)
    assert IMAGE // 2 < most.bytes <= IMAGE
    assert "depth" in " ".join(most.source)
    assert all(one.how == IN_PLACE or one.how.split()[1] in ("ahead", "behind") for one in found)
    report = report_of(program, "cortex-m4", {})
    assert report.shared == found
    assert report_from_json(report.to_json()) == report
    assert program.placed.arena == 2 * IMAGE - most.bytes or most.bytes == IMAGE
