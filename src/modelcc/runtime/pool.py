"""The thread pool that compiled programs run on, from Python.

The pool itself is pool.c.  The package includes its LLVM text, too (``make pool``), which is
compiled on first use: users' machines have no C compiler.
"""

import ctypes
import os
import platform
import weakref
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Self

from modelcc.ir.errors import Error
from modelcc.runtime.errors import LoadError
from modelcc.runtime.loader import NativeCode, load_llvm

ARCHITECTURES = ("x86_64", "aarch64")

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)
_DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
_EXPORTS = ("mcc_pool_create", "mcc_pool_destroy", "mcc_parallel_for")


class PoolError(Error):
    """A thread pool that cannot be created or used, and why."""


def pool_llvm(architecture: str) -> str:
    """LLVM text of the thread pool for Linux on `architecture` (one of ARCHITECTURES)."""
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise PoolError(f"there is no thread pool for '{architecture}' yet, only for {known}")
    folder = files("modelcc.runtime")
    names = ("pool.ll", f"pool_{architecture}.ll")
    return "".join(folder.joinpath(name).read_text("utf-8") for name in names)


def pool_c() -> str:
    """The thread pool as one C file, for Linux."""
    folder = files("modelcc.runtime")
    header = folder.joinpath("pool.h").read_text("utf-8")
    return folder.joinpath("pool.c").read_text("utf-8").replace('#include "pool.h"', header)


def available_cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ThreadPool:
    """Threads that run pieces of loops; the calling thread is one of them.

    Native code gets `address` (the pool) and `parallel_for_address` (mcc_parallel_for of pool.h).
    A pool may be used from several threads: while it is busy, other calls, and calls from within
    a body, run in their own thread. In a forked child it runs everything in the calling thread.
    Close it, or use it in a `with`; what is left open is closed when Python exits.
    """

    def __init__(self, threads: int, code: NativeCode | None = None) -> None:
        """Starts `threads - 1` threads.  Raises PoolError if the system refuses them.

        `code` defines the pool's functions (default: `native_pool`).
        """
        if threads < 1:
            raise PoolError(f"a thread pool needs at least one thread, not {threads}")
        code = code or native_pool()
        handle = _CREATE(code.address("mcc_pool_create"))(threads)
        if not handle:
            raise PoolError(
                f"the system refused {threads} threads; ask for fewer, or raise its limits "
                "(ulimit -u; Linux 4.14 or newer is needed)"
            )
        self.threads = threads
        self.address: int = handle
        self.parallel_for_address = code.address("mcc_parallel_for")
        self._parallel_for = _PARALLEL_FOR(self.parallel_for_address)
        self._finalizer = weakref.finalize(self, _destroy, code, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for a running loop, then ends the threads. Idempotent."""
        self._finalizer()

    def run(self, body: int, context: int, extent: int, grain: int = 1) -> None:
        """Calls the native function at address `body` on chunks of range(extent).

        Its signature is mcc_body of pool.h; chunk bounds are multiples of `grain`.
        """
        if not self._finalizer.alive:
            raise PoolError("the thread pool is closed")
        self._parallel_for(self.address, body, context, extent, grain)

    def parallel_for(
        self, body: Callable[[int, int, int], None], extent: int, grain: int = 1
    ) -> None:
        """Calls `body(begin, end, thread)` on chunks of range(extent); for tests and glue code.

        An exception in `body` is re-raised here after all chunks have ended; of several, that of
        the lowest thread.
        """
        failures: dict[int, BaseException] = {}

        def guarded(_context: int | None, begin: int, end: int, thread: int) -> None:
            try:
                body(begin, end, thread)
            except BaseException as error:
                failures[thread] = error

        callback = _BODY(guarded)
        self.run(ctypes.cast(callback, ctypes.c_void_p).value or 0, 0, extent, grain)
        if failures:
            raise failures[min(failures)]


def shared_pool(threads: int, code: NativeCode | None = None, identity: bytes = b"") -> ThreadPool:
    """The process's pool with this many threads, created by the functions of `code`.

    Code with the same `identity` (the pool's object file) has the same pool layout, and shares
    pools.
    """
    pools = _shared_pools()
    if (threads, identity) not in pools:
        pools[threads, identity] = ThreadPool(threads, code)
    return pools[threads, identity]


@cache
def _shared_pools() -> dict[tuple[int, bytes], ThreadPool]:
    """Pools by threads and identity; like their threads, they live as long as the process."""
    return {}


@cache
def native_pool() -> NativeCode:
    """The compiled pool: mcc_pool_create, mcc_pool_destroy and mcc_parallel_for.

    One per process, never unloaded: threads run in it.
    """
    if platform.system() != "Linux":
        raise PoolError(f"the thread pool runs on Linux, not on {platform.system()}")
    try:
        return load_llvm(pool_llvm(platform.machine()), _EXPORTS)
    except LoadError as error:
        raise PoolError(f"cannot load the thread pool: {error}") from error


def _destroy(code: NativeCode, handle: int) -> None:
    _DESTROY(code.address("mcc_pool_destroy"))(handle)
