"""Dialects of C, as tables: extensions of the standard, and their spelling.

Texts with ``{}`` are templates of their operand; an empty one omits the construct.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GroupDialect:
    """Spelling of a dialect for groups of threads.

    ``kernel`` and ``size``, a template of the numbers of threads in three dimensions, precede the
    head of a function; ``memory`` and ``shared`` the types of global and of shared memory.
    ``group`` and ``thread`` are the indices in each dimension.  ``numbered`` is a template of a
    parameter and its number, ``given`` of the type and the name of a size; ``indices`` are the
    parameters after those.  With ``matrices`` threads hold matrices together, as SIMD-groups of
    Metal do.
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
    """``name`` is the target's, ``standard`` the compilers' name of the language.

    ``vectors``: there are vector types (``vector_size``), with subscripts, comparisons and
    conversions; else functions have one lane.  ``builtin`` is a template of a function of math.h,
    ``infinity`` and ``nan`` are of ``double`` and of ``float``.  ``note`` stores a number that
    other threads may store concurrently.  ``labels``: symbols may have assembler labels.  With
    ``groups`` all functions are kernels for accelerators, otherwise none is.  ``opening`` follows
    the headers at the start of files, ``reserved`` are identifiers to avoid, and ``index`` is the
    type of indices.  Local memory of functions is ``aligned`` to ``alignment`` bytes at most.
    ``halves`` names builtin conversions between floats and the bits of halves, with their bodies.
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
"""C11 with the extensions of GCC and Clang."""

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
"""C99 for any compiler, with scalar loops."""

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
"""C99 for 32-bit processors, where tensors are smaller than 2 GiB."""
