"""Progress messages while stages run: the active block, and how much of it is done."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from modelcc.pipeline import PipelineStage, StageRun
from modelcc.targets.base import BuildConfig

LOG = logging.getLogger("modelcc.stages")

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "import": "importing the model",
        "graph": "graph passes",
        "lower": "tensor passes",
        "tensor": "tensor passes",
        "schedule": "scheduling kernels",
        "loop": "loop passes",
        "plan": "planning memory",
        "emit": "writing code",
    }
)
"""Titles of blocks; the target gives that of the build, and packing is quick."""


def announcer(
    stages: Sequence[PipelineStage], config: BuildConfig
) -> Callable[[PipelineStage], None]:
    """Tells the build configuration's progress callback of each of ``stages`` as it begins."""
    totals = Counter(TITLES[stage.block] for stage in stages if stage.block in TITLES)
    done: Counter[str] = Counter()
    last: list[str] = []

    def begin(stage: PipelineStage) -> None:
        title = TITLES.get(stage.block)
        if last and last[-1] != title:
            config.report(last[-1], totals[last[-1]], totals[last[-1]])
            last.clear()
        if title is not None:
            config.report(title, done[title], totals[title])
            done[title] += 1
            last[:] = [title]

    return begin


def log_stage(run: StageRun) -> None:
    """One line for each stage, at level INFO."""
    LOG.info("%s: %.1f ms", run.stage.label, run.seconds * 1e3)
