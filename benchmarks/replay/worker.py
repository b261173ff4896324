"""Runs on the sources of a tree: `python -m benchmarks.replay.worker JOB`, a job as JSON.

Prints a line of JSON for each case and setting.  The tree may be older than this file, so it
depends on little: the stages of the pipeline and the targets' `emit_functions`.  What only some
trees report is omitted in others.
"""

from __future__ import annotations

import gc
import hashlib
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import modelcc
from benchmarks.replay.cases import cases_of
from benchmarks.replay.plans import Plans, loops_of, work_of
from benchmarks.replay.records import Job, Kernel, Outcome, job_from, to_json
from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages

NAME = "kernel"
"""The name of every kernel when its text is hashed."""


def outcomes(job: Job) -> Iterator[Outcome]:
    """One outcome per case and setting."""
    plans = Plans()
    for name, make in cases_of(job):
        for setting in job.settings:
            outcome = Outcome(job.group(name), name, setting)
            try:
                yield _filled(outcome, make(), plans, job.texts)
            except Exception as error:  # any failure of a tree is reported
                reason = (str(error).splitlines() or [""])[0]
                yield replace(outcome, failed=f"{type(error).__name__}: {reason}")
            gc.collect()


def _filled(outcome: Outcome, model: Any, plans: Plans, texts: str) -> Outcome:
    setting = outcome.setting
    options = Options(target=setting.target, cpu=setting.cpu, threads=setting.threads)
    target = target_of(options)
    with plans.noted():
        stages = before_block(pipeline(target, options, NOWHERE), "emit")
        program = run_stages(stages, model)
    launches: dict[str, list[Any]] = defaultdict(list)
    for launch in _launches(program.steps):
        launches[getattr(launch, "callee", None) or launch.function].append(launch)
    kernels = [
        _kernel(function, launches[function.name], target, plans, texts)
        for function in program.functions
    ]
    held = program.constants.values()
    constants = sum(c.nbytes for c in held) if all(hasattr(c, "nbytes") for c in held) else None
    arena = getattr(program, "placement", program).arena
    return replace(outcome, kernels=tuple(kernels), arena=str(arena), constants=constants)


def _kernel(function: Any, launches: list[Any], target: Any, plans: Plans, texts: str) -> Kernel:
    modules = target.emit_functions([replace(function, name=NAME, source=())])
    text = "\n".join(module.text for module in modules)
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    if texts:
        (Path(texts) / digest).write_bytes(zlib.compress(text.encode(), 1))
    flops, size = work_of(function, launches[0]) if launches else (None, None)
    nodes = dict.fromkeys(node for launch in launches for node in launch.source)
    return Kernel(
        function.name, tuple(nodes), len(launches), digest, len(text),
        flops, size, plans.of(function.name), loops_of(function),
    )  # fmt: skip


def _launches(steps: Any) -> Iterator[Any]:
    """Launches, including those in branches and loops."""
    for step in steps:
        if type(step).__name__ == "Launch":
            yield step
        for part in ("then", "other", "body"):
            yield from _launches(getattr(step, part, ()))


def main(text: str) -> None:
    """See the module."""
    job = job_from(text)
    home = Path(modelcc.__file__).resolve()
    if not home.is_relative_to(Path(job.sources).resolve()):
        raise SystemExit(f"modelcc is that of {home}, not that of {job.sources}")
    gc.freeze()
    gc.disable()
    for outcome in outcomes(job):
        print(to_json(outcome), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
