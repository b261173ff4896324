"""Building many modules, in this process and in workers."""

# pyright: reportPrivateUsage=false
# How a process is started is replaced, for one that cannot be.

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from modelcc.targets.native import parallel_build
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.parallel_build import ParallelBuilder, WorkerPool, build
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm, host_machine
from modelcc.targets.native.worker import CompileRequest

OPTIONS = CodegenOptions()


def constant(number: int):
    return f"define i32 @f{number}() {{\n  ret i32 {number}\n}}\n"


MODULES = [constant(number) for number in range(8)]
BROKEN = "define i32 @f() {\n  ret i64 0\n}\n"
# Valid LLVM that aborts the code generator.
FATAL = """
define void @f(ptr %p) {
  %x = call i32 asm sideeffect "no such instruction $0", "=r"()
  store i32 %x, ptr %p
  ret void
}
"""


@pytest.mark.parametrize("jobs", [1, 3])
def test_objects_come_in_the_order_of_the_modules(jobs: int) -> None:
    here = host_machine()
    expected = [compile_llvm(text, here, OPTIONS) for text in MODULES]
    assert build(MODULES, here, OPTIONS, jobs=jobs) == expected


def test_nothing_to_build() -> None:
    assert build([], host_machine(), OPTIONS, jobs=4) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_up_to_the_total(jobs: int) -> None:
    seen = []
    build(
        MODULES,
        host_machine(),
        OPTIONS,
        jobs=jobs,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, len(MODULES)) for done in range(len(MODULES) + 1)]


def test_equal_modules_are_compiled_once(tmp_path: Path) -> None:
    seen = []
    objects = build(
        [constant(1), constant(2), constant(1)],
        host_machine(),
        OPTIONS,
        progress=lambda done, total: seen.append(total),
    )
    assert objects[0] == objects[2] != objects[1]
    assert set(seen) == {2}


def test_the_cache_is_used(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    first = build(MODULES, host_machine(), OPTIONS, cache=cache)
    seen = []
    second = build(
        MODULES,
        host_machine(),
        OPTIONS,
        cache=cache,
        progress=lambda done, total: seen.append(done),
    )
    assert second == first
    assert seen == [len(MODULES)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_broken_module_is_reported(jobs: int) -> None:
    modules = [*MODULES, BROKEN]
    with pytest.raises(CodegenError, match="value doesn't match function result type"):
        build(modules, host_machine(), OPTIONS, jobs=jobs)


def test_a_worker_that_dies_is_reported_and_replaced() -> None:
    here = host_machine()
    with WorkerPool(1) as pool:
        with pytest.raises(CodegenError, match="LLVM stopped while compiling a module"):
            pool.compile([CompileRequest(FATAL, here, OPTIONS)])
        good = pool.compile([CompileRequest(MODULES[0], here, OPTIONS)])
    assert good == [compile_llvm(MODULES[0], here, OPTIONS)]


def test_workers_build_for_other_machines() -> None:
    arm = Machine("aarch64-unknown-linux-gnu", "cortex-a76")
    assert build(MODULES[:2], arm, OPTIONS, jobs=2) == build(MODULES[:2], arm, OPTIONS)


SCRIPT = """
from modelcc.targets.native.toolchain import host_machine
from modelcc.targets.native.parallel_build import build
from modelcc.targets.native.toolchain import CodegenOptions
texts = [f"define void @f{n}() {{\\n  ret void\\n}}" for n in range(4)]
print(len(build(texts, host_machine(), CodegenOptions(), jobs=2)))
"""


def test_a_script_without_a_main_guard_can_build(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=True
    )
    assert run.stdout == "4\n"


def test_what_was_started_is_not_built_again() -> None:
    here = host_machine()
    expected = [compile_llvm(text, here, OPTIONS) for text in MODULES]
    seen = []
    with closing(ParallelBuilder(here, OPTIONS, 2, None)) as builder:
        for text in reversed(MODULES):
            builder.start(text)
        assert builder.start(MODULES[0]) == builder.start(MODULES[0])
        assert builder.build(MODULES, lambda done, total: seen.append((done, total))) == expected
        assert builder.build(MODULES[:2]) == expected[:2]
    assert seen[-1] == (len(MODULES), len(MODULES))


def test_a_broken_module_matters_only_if_it_is_wanted() -> None:
    with closing(ParallelBuilder(host_machine(), OPTIONS, 2, None)) as builder:
        builder.start(BROKEN)
        assert len(builder.build(MODULES[:2])) == 2
        with pytest.raises(CodegenError, match="value doesn't match function result type"):
            builder.build([MODULES[0], BROKEN])


def test_a_builder_keeps_what_was_wanted(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    with closing(ParallelBuilder(host_machine(), OPTIONS, 2, cache)) as builder:
        built = builder.build(MODULES[:3])
    assert build(MODULES[:3], host_machine(), OPTIONS, cache=cache) == built
    assert len(list(tmp_path.glob("*/*"))) == 3


def test_workers_start_when_there_is_work_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start():
        started.append(True)
        return real()

    real = parallel_build._start
    monkeypatch.setattr(parallel_build, "_start", start)
    request = CompileRequest(MODULES[0], host_machine(), OPTIONS)
    with WorkerPool(4) as pool:
        assert not started
        for _ in range(3):
            pool.submit(request).result()
        assert len(started) == 1
