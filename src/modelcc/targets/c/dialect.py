"""Dialects of C, as tables: what a compiler understands beyond the standard, and how it is said.

Texts with ``{}`` take what they are about; an empty one leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GroupDialect:
    """How a dialect says what runs as groups of threads.

    ``kernel`` and ``size``, which takes the numbers of threads in three dimensions, stand before
    the head of a function; ``memory`` and ``shared`` before the types of what is in global and in
    shared memory.  ``group`` and ``thread`` are the indices in each dimension.  ``numbered`` takes
    a parameter and its number, ``given`` the type and the name of a size; ``indices`` are
    parameters after those.  With ``matrices`` threads have some together, as Metal's do.
    """

    kernel: str
    size: str
    memory: str
    shared: str
    group: tuple[str, str, str]
    thread: tuple[str, str, str]
    barrier: str
    numbered: str = "{}"
    given: str = "{} {}"
    indices: tuple[str, ...] = ()
    matrices: bool = False


@dataclass(frozen=True)
class CDialect:
    """``name`` is the target's, ``standard`` what compilers call the language.

    ``vectors``: there are vector types (``vector_size``), with subscripts, comparisons and
    conversions; else functions have one lane.  ``builtin`` spells a function of math.h,
    ``infinity`` and ``nan`` are of ``double`` and of ``float``.  ``note`` stores a number
    that other threads may store, too.  ``labels``: names of symbols may be given to the assembler.
    With ``groups`` all functions are kernels for accelerators, without none is.  ``opening`` is
    what files begin with after the headers, ``reserved`` what nothing else may be called, and
    ``index`` the type of indices.  Functions' own memory is ``aligned`` to ``alignment`` bytes at
    most.  ``halves`` names conversions between floats and the bits of halves that the compiler
    knows, with their bodies.
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
    groups: GroupDialect | None = None
    opening: str = ""
    reserved: frozenset[str] = frozenset()
    index: str = "int64_t"
    alignment: int = 64
    halves: tuple[tuple[str, str], ...] = ()


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

EMBEDDED = replace(
    C99,
    name="mcu",
    index="int32_t",
    inline="static inline MCC_EVERYWHERE",
    alone="static MCC_ALONE",
    aligned=" MCC_ALIGN({})",
    alignment=4,
    opening="""\
#ifdef __GNUC__
#define MCC_EVERYWHERE __attribute__((always_inline, unused))
#define MCC_ALIGN(bytes) __attribute__((aligned(bytes)))
#else
#define MCC_EVERYWHERE
#define MCC_ALIGN(bytes)
#endif
#if defined(__clang__)
#define MCC_ALONE __attribute__((noinline))
#elif defined(__GNUC__)
#define MCC_ALONE __attribute__((noinline, noclone))
#else
#define MCC_ALONE
#endif""",
)
"""C99 for processors of 32 bits, where no tensor has 2 GiB."""
