"""Dialects of C, as tables: what a compiler understands beyond the standard, and how it is said.

Texts with ``{}`` take what they are about; an empty one leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CDialect:
    """``name`` is the target's, ``standard`` what compilers call the language.

    ``vectors``: there are vector types (``vector_size``), with subscripts, comparisons and
    conversions; else functions have one lane.  ``builtin`` spells a function of math.h,
    ``infinity`` and ``nan`` are of ``double`` and of ``float``.  ``note`` stores a number
    that other threads may store, too.  ``labels``: names of symbols may be given to the assembler.
    """

    name: str
    standard: str
    vectors: bool
    headers: tuple[str, ...]
    inline: str
    alone: str
    unlikely: str
    aligned: str
    unroll: str
    prefetch: str
    note: str
    builtin: str
    infinity: tuple[str, str]
    nan: tuple[str, str]
    labels: bool


GNU = CDialect(
    name="c",
    standard="gnu11",
    vectors=True,
    headers=("stdbool.h", "stdint.h", "string.h"),
    inline="static inline __attribute__((always_inline, unused))",
    alone="static __attribute__((noinline))",
    unlikely="__builtin_expect({}, 0)",
    aligned=" __attribute__((aligned({})))",
    unroll="#pragma GCC unroll {}",
    prefetch="__builtin_prefetch({}, 0, {});",
    note="__atomic_store_n(&{}, {}, __ATOMIC_RELAXED);",
    builtin="__builtin_{}",
    infinity=("__builtin_inf()", "__builtin_inff()"),
    nan=('__builtin_nan("")', '__builtin_nanf("")'),
    labels=True,
)
"""C11 as GCC and Clang extend it."""

C99 = CDialect(
    name="c99",
    standard="c99",
    vectors=False,
    headers=("math.h", "stdbool.h", "stdint.h", "string.h"),
    inline="static inline",
    alone="static",
    unlikely="{}",
    aligned="",
    unroll="",
    prefetch="",
    note="{} = {};",
    builtin="{}",
    infinity=("(double)INFINITY", "INFINITY"),
    nan=("(double)NAN", "NAN"),
    labels=False,
)
"""C as any compiler since 1999 takes it, for loops over single elements."""
