"""The thread pool: partition, nesting, several callers, fork, exit; through LLVM and as C."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from modelcc.ir.types import Array
from modelcc.runtime.linking.elf import read_object
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.pool import (
    ARCHITECTURES,
    PoolError,
    ThreadPool,
    available_cores,
    native_pool,
    pool_llvm,
)
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm, host_machine

# y[i] += i for the piece; and a loop that forks and joins `count` times.
NATIVE = """
declare void @mcc_parallel_for(ptr, ptr, ptr, i64, i64)

define void @add(ptr %y, i64 %begin, i64 %end, i32 %thread) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr i64, ptr %y, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, %i
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @repeat(ptr %pool, ptr %y, i64 %extent, i64 %grain, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @mcc_parallel_for(ptr %pool, ptr @add, ptr %y, i64 %extent, i64 %grain)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)


Piece = tuple[int, int, int]
Body = Callable[[int, int, int], None]


class CPool:
    """pool.c behind the methods of ThreadPool that the tests use."""

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self.library = library
        self.address = library.mcc_pool_create(threads)
        address = ctypes.cast(library.mcc_parallel_for, ctypes.c_void_p).value
        assert self.address and address
        self.parallel_for_address = address

    def parallel_for(self, body: Body, extent: int, grain: int = 1) -> None:
        def call(_: Any, begin: int, end: int, thread: int) -> None:
            body(begin, end, thread)

        callback = BODY(call)
        self.library.mcc_parallel_for(self.address, callback, None, extent, grain)

    def close(self) -> None:
        self.library.mcc_pool_destroy(self.address)


Pool = ThreadPool | CPool
MakePool = Callable[[int], Pool]


@pytest.fixture(scope="module")
def c_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    output = tmp_path_factory.mktemp("pool") / "libpool.so"
    source = str(files("modelcc.runtime") / "pool.c")
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [compiler, *warnings, "-O2", "-fPIC", "-shared", source, "-o", str(output), "-pthread"],
        check=True,
    )
    library = ctypes.CDLL(str(output))
    library.mcc_pool_create.restype = ctypes.c_void_p
    library.mcc_pool_destroy.argtypes = [ctypes.c_void_p]
    library.mcc_parallel_for.argtypes = [
        ctypes.c_void_p,
        BODY,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
    ]
    library.mcc_parallel_for.restype = None
    return library


@pytest.fixture(params=["llvm", "c"])
def make_pool(request: pytest.FixtureRequest) -> Iterator[MakePool]:
    """A function that makes pools of `threads` threads, all closed after the test."""
    pools: list[Pool] = []

    def make(threads: int) -> Pool:
        if request.param == "llvm":
            pools.append(ThreadPool(threads))
        else:
            pools.append(CPool(request.getfixturevalue("c_library"), threads))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def pieces_of(pool: Pool, extent: int, grain: int = 1) -> list[Piece]:
    pieces: list[Piece] = []
    pool.parallel_for(lambda begin, end, thread: pieces.append((begin, end, thread)), extent, grain)
    return sorted(pieces)


def repeat(pool: Pool) -> tuple[NativeCode, Callable[[Array, int, int], None]]:
    contents = compile_llvm(NATIVE, host_machine())
    code = load_objects([contents], {"mcc_parallel_for": pool.parallel_for_address})
    address = code.address("repeat")
    pointers = [ctypes.c_void_p] * 2
    function = ctypes.CFUNCTYPE(None, *pointers, *[ctypes.c_int64] * 3)(address)

    def call(y: Array, grain: int, count: int) -> None:
        function(pool.address, y.ctypes.data, len(y), grain, count)

    return code, call


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("grain", [1, 4, 7])
@pytest.mark.parametrize("extent", [0, 1, 2, 7, 8, 64, 100])
def test_pieces_cover_the_extent_in_order(
    make_pool: MakePool, threads: int, grain: int, extent: int
) -> None:
    pieces = pieces_of(make_pool(threads), extent, grain)
    bounds = [0, *(end for _, end, _ in pieces)]
    assert [begin for begin, _, _ in pieces] == bounds[:-1]
    assert bounds[-1] == extent
    assert all(bound % grain == 0 for bound in bounds[:-1])
    assert len(pieces) == min(threads, -(-extent // grain))
    assert [thread for _, _, thread in pieces] == list(range(len(pieces)))
    sizes = [-(-(end - begin) // grain) for begin, end, _ in pieces]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_grain_below_one_means_one(make_pool: MakePool) -> None:
    assert len(pieces_of(make_pool(2), 2, 0)) == 2


def test_threads_differ(make_pool: MakePool) -> None:
    pool = make_pool(3)
    names: set[int] = set()
    together = threading.Barrier(3, timeout=300)

    def body(begin: int, end: int, _: Any) -> None:
        together.wait()
        names.add(threading.get_ident())

    pool.parallel_for(body, 3)
    assert len(names) == 3
    assert threading.get_ident() in names


def test_no_piece_waits_for_a_worker(make_pool: MakePool) -> None:
    pool = make_pool(64)
    seen: list[Piece] = []
    pause = threading.Event()
    for _ in range(5):
        pool.parallel_for(lambda begin, end, thread: seen.append((begin, end, thread)), 64)
        pause.wait(0.003)  # now they sleep, and some come too late for their next piece
    assert sorted(seen) == sorted(5 * [(i, i + 1, i) for i in range(64)])


def test_nested_calls_run_in_their_thread(make_pool: MakePool) -> None:
    pool = make_pool(3)
    seen: list[tuple[int, Piece, bool]] = []

    def outer(begin: int, end: int, _: Any) -> None:
        me = threading.get_ident()

        def inner(*piece: int) -> None:
            first, last, thread = piece
            seen.append((begin, (first, last, thread), threading.get_ident() == me))

        pool.parallel_for(inner, 10)

    pool.parallel_for(outer, 3)
    assert sorted(seen) == [(begin, (0, 10, 0), True) for begin in range(3)]


def test_native_bodies_many_times(make_pool: MakePool) -> None:
    pool = make_pool(2)
    _code, call = repeat(pool)
    y = np.zeros(37, np.int64)
    call(y, 5, 20_000)
    np.testing.assert_array_equal(y, 20_000 * np.arange(37))


def test_more_threads_than_cores(make_pool: MakePool) -> None:
    pool = make_pool(4 * available_cores())
    _code, call = repeat(pool)
    y = np.zeros(1000, np.int64)
    call(y, 1, 200)
    np.testing.assert_array_equal(y, 200 * np.arange(1000))


def test_several_callers_at_once(make_pool: MakePool) -> None:
    pool = make_pool(2)
    _code, call = repeat(pool)
    results = [np.zeros(64, np.int64) for _ in range(4)]
    callers = [threading.Thread(target=call, args=(y, 8, 5000)) for y in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=300)
    for y in results:
        np.testing.assert_array_equal(y, 5000 * np.arange(64))


def test_workers_that_sleep_are_woken(make_pool: MakePool) -> None:
    pool = make_pool(2)
    _code, call = repeat(pool)
    y = np.zeros(8, np.int64)
    pause = threading.Event()
    for _ in range(20):
        call(y, 1, 1)
        pause.wait(0.003)  # much longer than workers spin
    np.testing.assert_array_equal(y, 20 * np.arange(8))


def test_a_caller_sleeps_until_slow_workers_end(make_pool: MakePool) -> None:
    pool, pause = make_pool(2), threading.Event()
    done: list[int] = []
    together = threading.Barrier(2, timeout=300)

    def body(begin: int, end: int, thread: int) -> None:
        together.wait()
        if thread:
            pause.wait(0.02)
        done.append(thread)

    pool.parallel_for(body, 2)
    assert sorted(done) == [0, 1]


def test_pools_come_and_go(make_pool: MakePool) -> None:
    assert native_pool() is native_pool()
    before = set(threading.enumerate())
    for _ in range(50):
        with ThreadPool(3) as pool:
            assert len(pieces_of(pool, 3)) == 3
    assert set(threading.enumerate()) <= before


def test_exceptions_reach_the_caller() -> None:
    with ThreadPool(2) as pool:

        def body(begin: int, end: int, thread: int) -> None:
            raise KeyError(thread)

        with pytest.raises(KeyError, match="0"):
            pool.parallel_for(body, 2)
        assert len(pieces_of(pool, 2)) == 2


def test_a_closed_pool_is_refused() -> None:
    pool = ThreadPool(2)
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match="closed"):
        pool.parallel_for(lambda *_: None, 2)


def test_a_pool_needs_a_thread() -> None:
    with pytest.raises(PoolError, match="at least one thread, not 0"):
        ThreadPool(0)


FORK = """
import os, sys
from modelcc.runtime.pool import ThreadPool
pool = ThreadPool(3)
pieces = []
pool.parallel_for(lambda *piece: pieces.append(piece), 9)
child = os.fork()
if child == 0:
    pieces.clear()
    pool.parallel_for(lambda *piece: pieces.append(piece), 9)
    with ThreadPool(2) as own:
        own.parallel_for(lambda *piece: pieces.append(piece), 2)
    print(sorted(pieces), flush=True)
    pool.close()
    sys.exit(7)
_, status = os.waitpid(child, 0)
pieces.clear()
pool.parallel_for(lambda *piece: pieces.append(piece), 9)
print(sorted(pieces), os.waitstatus_to_exitcode(status))
"""


def run_script(text: str):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout.splitlines()


def test_a_forked_child_runs_alone() -> None:
    child, parent = run_script(FORK)
    assert child == "[(0, 1, 0), (0, 9, 0), (1, 2, 1)]"
    assert parent == "[(0, 3, 0), (3, 6, 1), (6, 9, 2)] 7"


def test_an_open_pool_does_not_hold_up_exit() -> None:
    script = "from modelcc.runtime.pool import ThreadPool\np = ThreadPool(4)\nprint(p.threads)"
    assert run_script(script) == ["4"]


@pytest.mark.skipif(available_cores() < 2, reason="one core is all workers may use")
def test_a_worker_on_the_callers_core_goes_away(make_pool: MakePool) -> None:
    before = set(os.listdir("/proc/self/task"))
    pool = make_pool(2)
    (worker,) = set(os.listdir("/proc/self/task")) - before
    cores = os.sched_getaffinity(0)
    here = {min(cores)}
    y = np.zeros(64, np.int64)
    _code, run = repeat(pool)
    try:
        os.sched_setaffinity(0, here)
        os.sched_setaffinity(int(worker), here)
        patience = time.monotonic() + 60
        while os.sched_getaffinity(int(worker)) == here and time.monotonic() < patience:
            run(y, 1, 1000)
        assert os.sched_getaffinity(int(worker)) == cores - here
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_pool_compiles_for_every_architecture(architecture: str) -> None:
    target = Machine(f"{architecture}-unknown-linux-gnu")
    contents = compile_llvm(pool_llvm(architecture), target, CodegenOptions())
    names = {"mcc_parallel_for", "mcc_pool_create", "mcc_pool_destroy"}
    assert set(read_object(contents).defined) == names


def test_other_architectures_are_refused() -> None:
    with pytest.raises(PoolError, match="no thread pool for 'vax' yet"):
        pool_llvm("vax")
