"""Functions are timed in a process of their own, which may crash or hang."""

from __future__ import annotations

import pytest

from modelcc.driver import target_of
from modelcc.model_tuning.above import tasks_of
from modelcc.options import Options
from modelcc.schedule.schedule import Schedule
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.candidates import candidates
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import compile_llvm, host_machine
from modelcc.tune.measurement import Worker, WorkerError, WorkerMeasurer
from modelcc.tune.search import Task
from modelcc.tune.worker import Job, Variant, timed
from tests.schedule.test_listing import MODEL

TRAP = """declare void @llvm.trap()
define void @f() {
  call void @llvm.trap()
  ret void
}
"""
ENDLESS = """define void @f() {
  br label %again
again:
  call void asm sideeffect "", ""()
  br label %again
}
"""


@pytest.fixture(scope="module", params=["native", "c"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found = target_of(Options(target=request.param, cpu="x86-64"))
    assert isinstance(found, CpuTarget)
    return found


def job(text: str, machine: Machine) -> Job:
    variants = (Variant(compile_llvm(text, machine), "f", parallel=False),)
    return Job(variants, (), (), 1, 0, 0.01, 3)


def test_candidates_are_timed_beside_the_default(target: CpuTarget) -> None:
    (task,) = tasks_of(MODEL, Options(cpu="x86-64"))
    others: list[Schedule] = list(candidates(task.kernel, task.default, target.cpu))[:2]
    with Worker() as worker:
        measurer = WorkerMeasurer(target, BuildConfig(), worker, 0.01)
        assert 0 < measurer.seconds_of(task.kernel, task.default) < 1
        times = measurer.times(task.kernel, task.default, others)
    assert len(times) == 2 and all(0 < t.own < 1 and t.ratio > 0 for t in times)
    assert isinstance(task, Task) and task.calls == 1 and task.nodes


def test_a_crash_and_a_hang_are_told_and_the_next_job_runs() -> None:
    machine = host_machine()
    good = job("define void @f() {\n  ret void\n}\n", machine)
    with Worker() as worker:
        assert len(worker.times(good)[0]) == 3
        with pytest.raises(WorkerError) as crash:
            worker.times(job(TRAP, machine))
        assert not crash.value.hung
        with pytest.raises(WorkerError) as hang:
            worker.times(job(ENDLESS, machine))
        assert hang.value.hung
        assert len(worker.times(good)[0]) == 3
    assert len(timed(good)[0]) == 3
