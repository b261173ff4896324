"""System symbols that compiled code may use: the names listed here, and no others.

Every Linux has them, whatever its compilers.  Code that needs anything else (such as a compiler's
runtime library) is rejected when it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

MEMORY = ("memcpy", "memmove", "memset")
"""Compilers emit calls of these for loops and assignments."""

TIME = ("clock_gettime",)
"""For profiles of a program."""

THREADS = (
    "madvise", "mmap", "munmap", "pthread_create", "pthread_join", "pthread_sigmask",
    "sched_getaffinity", "sched_getcpu", "sched_setaffinity", "sched_yield", "sigfillset",
    "syscall",
)  # fmt: skip
"""For the thread pool."""

ROUNDING = (
    "ceil", "ceilf", "floor", "floorf", "nearbyint", "nearbyintf", "trunc", "truncf",
)  # fmt: skip
"""For C on processors without rounding instructions."""

ALLOWED = frozenset({*MEMORY, *TIME, *THREADS, *ROUNDING})
"""All of these."""

PARALLEL_FOR = "mcc_parallel_for"
"""Called by kernels; included in artifacts, or provided by the runtime."""


class ObjectNames(Protocol):
    """Names of an object file of any system."""

    @property
    def defined(self) -> tuple[str, ...]:
        """Global names that it exports."""
        ...

    @property
    def undefined(self) -> tuple[str, ...]:
        """Global names that it imports."""
        ...


def needed(objects: Sequence[ObjectNames]) -> tuple[str, ...]:
    """Undefined names of ``objects`` together, sorted."""
    defined = {name for item in objects for name in item.defined}
    return tuple(sorted({name for item in objects for name in item.undefined} - defined))


def foreign(objects: Sequence[ObjectNames]) -> tuple[str, ...]:
    """Those of the :func:`needed` names that compiled code must not take from the system."""
    return tuple(name for name in needed(objects) if name not in {*ALLOWED, PARALLEL_FOR})
