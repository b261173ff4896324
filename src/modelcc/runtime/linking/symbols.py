"""What compiled code may take from the system it runs on: the names listed here, and no others.

Every Linux has them, whatever its compilers.  Code that needs anything else (an emulation that a
compiler keeps in a library of its own, say) is refused when it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

MEMORY = ("memcpy", "memmove", "memset")
"""Compilers make calls of these from loops and assignments."""

TIME = ("clock_gettime",)
"""For the profile of a program."""

THREADS = (
    "madvise", "mmap", "munmap", "pthread_create", "pthread_join", "pthread_sigmask",
    "sched_getaffinity", "sched_getcpu", "sched_setaffinity", "sched_yield", "sigfillset",
    "syscall",
)  # fmt: skip
"""For the thread pool."""

ROUNDING = (
    "ceil", "ceilf", "floor", "floorf", "nearbyint", "nearbyintf", "trunc", "truncf",
)  # fmt: skip
"""For C on processors that have no instruction for them."""

ALLOWED = frozenset({*MEMORY, *TIME, *THREADS, *ROUNDING})
"""All of these."""

PARALLEL_FOR = "mcc_parallel_for"
"""What kernels call; artifacts bring it along, or the runtime gives it."""


class ObjectNames(Protocol):
    """What is in an object file of any system."""

    @property
    def defined(self) -> tuple[str, ...]:
        """Global names that it defines for others."""
        ...

    @property
    def undefined(self) -> tuple[str, ...]:
        """Global names that it needs."""
        ...


def needed(objects: Sequence[ObjectNames]) -> tuple[str, ...]:
    """Names that ``objects`` want from elsewhere, sorted."""
    defined = {name for item in objects for name in item.defined}
    return tuple(sorted({name for item in objects for name in item.undefined} - defined))


def foreign(objects: Sequence[ObjectNames]) -> tuple[str, ...]:
    """Those of the :func:`needed` names that compiled code may not take from the system."""
    return tuple(name for name in needed(objects) if name not in {*ALLOWED, PARALLEL_FOR})
