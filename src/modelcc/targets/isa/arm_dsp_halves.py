"""Products by the DSP extension of 32-bit Arm whose operands or weights are no signed bytes.

Of four weights that are halves the second and the third have changed places, as columns have them.
"""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.targets.isa.arm_dsp import (
    ROWS_OF_BYTES,
    WHERE,
    columns_by_rows,
    loop,
    routine_text,
    summed,
)
from modelcc.targets.isa.templates import RoutineText, assembly


def _spread_meaning(value: str) -> str:
    places = enumerate((0, 2, 1, 3))
    stores = (f"store %columns[12*k + {to}] = {value.format(place)}" for to, place in places)
    return "for k in 0 .. n {\n" + "\n".join(stores) + "\n}"


SPREAD_U8 = parse_function(f"""
func @spread_u8(%x: u8[4*n], %columns: mut i16[12*n - 8]; n, zero) {{
{_spread_meaning("sub(convert[i16](load %x[4*k + {}]), index[i16](zero))")}
}}
""")
"""Bytes without a sign less ``zero`` as one of the columns of ``dot_3x2``."""

SPREAD_16 = parse_function(f"""
func @spread_16(%x: i16[4*n], %columns: mut i16[12*n - 8]; n) {{
{_spread_meaning("load %x[4*k + {}]")}
}}
""")
"""Halves as one of the columns of ``dot_3x2``."""


def _dot_meaning() -> Iterator[str]:
    yield "for k in 0 .. n {"
    for i in range(4):
        for c in range(2):
            yield f"let %w{c}{i} = convert[i32](load %weights[8*k + {4 * c + i}])"
        for p in range(3):
            yield f"let %x{p}{i} = convert[i32](load %columns[12*k + {4 * p + i}])"
            yield from (
                f"%s{p + 3 * c} = muladd(%x{p}{i}, %w{c}{i}, %s{p + 3 * c})" for c in (0, 1)
            )
    yield "}"


DOT_3X2_HALVES = parse_function(f"""
func @dot_3x2_halves(%columns: i16[12*n], %weights: i16[8*n], %sums: mut i32[6]; n) {{
{summed(6, list(_dot_meaning()))}
}}
""")
"""Three columns of ``4 * n`` numbers by two rows of weights, fours of which follow each other."""


def _depthwise_meaning() -> Iterator[str]:
    yield "for i in 0 .. rows {"
    yield "for j in 0 .. columns {"
    for c, place in enumerate((0, 2, 1, 3)):
        x = f"load %x[down*i + right*j + {c}]"
        yield f"let %v{c} = sub(convert[i32]({x}), index[i32](zero))"
        yield f"let %w{c} = convert[i32](load %weights[4*wide*i + 4*j + {place}])"
        yield f"%s{c} = muladd(%v{c}, %w{c}, %s{c})"
    yield "}"
    yield "}"


DEPTHWISE_4_U8 = parse_function(f"""
func @depthwise_4_u8(%x: u8[down*rows - down + right*columns - right + 4],
                     %weights: i16[4*wide*rows - 4*wide + 4*columns], %sums: mut i32[4];
                     rows, columns, wide, down, right, zero) {{
{summed(4, list(_depthwise_meaning()))}
}}
""")
"""Windows of four channels, bytes without a sign less ``zero``, by weights of their own."""


def _dot_1x4_meaning(value: str, places: tuple[int, ...]) -> Iterator[str]:
    yield "for k in 0 .. n {"
    for i, place in enumerate(places):
        yield f"let %v{i} = {value.format(f'convert[i32](load %x[4*k + {i}])')}"
        for c in range(4):
            yield f"let %w{c}{i} = convert[i32](load %weights[16*k + {4 * c + place}])"
            yield f"%s{c} = muladd(%v{i}, %w{c}{i}, %s{c})"
    yield "}"


DOT_1X4_U8 = parse_function(f"""
func @dot_1x4_u8(%x: u8[4*n], %weights: i16[16*n], %sums: mut i32[4]; n, zero) {{
{summed(4, list(_dot_1x4_meaning("sub({}, index[i32](zero))", (0, 2, 1, 3))))}
}}
""")
"""One column of bytes without a sign less ``zero`` by four rows of weights."""

DOT_1X4_16 = parse_function(f"""
func @dot_1x4_16(%x: i16[4*n], %weights: i8[16*n], %sums: mut i32[4]; n) {{
{summed(4, list(_dot_1x4_meaning("{}", (0, 1, 2, 3))))}
}}
""")
"""One column of halves by four rows of bytes."""

_FOUR = [
    "ldrd %[x], %[y], [%[w]], #16", "ldrd %[e], %[f], [%[w], #-8]",
    "ldrd %[t], %[u], [%[p]], #24",
    "smlad %[a0], %[x], %[t], %[a0]", "smlad %[a0], %[y], %[u], %[a0]",
    "smlad %[b0], %[e], %[t], %[b0]", "smlad %[b0], %[f], %[u], %[b0]",
    "ldrd %[t], %[u], [%[p], #-16]",
    "smlad %[a1], %[x], %[t], %[a1]", "smlad %[a1], %[y], %[u], %[a1]",
    "smlad %[b1], %[e], %[t], %[b1]", "smlad %[b1], %[f], %[u], %[b1]",
    "ldrd %[t], %[u], [%[p], #-8]",
    "smlad %[a2], %[x], %[t], %[a2]", "smlad %[a2], %[y], %[u], %[a2]",
    "smlad %[b2], %[e], %[t], %[b2]", "smlad %[b2], %[f], %[u], %[b2]",
]  # fmt: skip
"""Four steps of three columns and two rows, as those of ``dot_3x2``."""

_BYTES = [
    "ldr %[a], [%[x]], #4", "uxtab16 %[b], %[zeros], %[a]",
    "uxtab16 %[a], %[zeros], %[a], ror #8", "strd %[b], %[a], [%[to]], #24",
]  # fmt: skip

_HALVES = [
    "ldr %[b], [%[x], #4]", "ldr %[a], [%[x]], #8", "pkhbt %[c], %[a], %[b], lsl #16",
    "pkhtb %[b], %[b], %[a], asr #16", "strd %[c], %[b], [%[to]], #24",
]  # fmt: skip


_ROWS = [
    line
    for c in range(4)
    for line in (
        "ldrd %[w0], %[w1], [%[w]], #8",
        f"smlad %[s{c}], %[w0], %[x0], %[s{c}]", f"smlad %[s{c}], %[w1], %[x1], %[s{c}]",
    )
]  # fmt: skip

_BYTES_OF_ONE = [
    "ldr %[t], [%[x]], #4",
    "uxtab16 %[x0], %[zeros], %[t]", "uxtab16 %[x1], %[zeros], %[t], ror #8", *_ROWS,
]  # fmt: skip

_HALVES_OF_ONE = [
    "ldr %[x1], [%[x], #4]", "ldr %[t], [%[x]], #8", "pkhbt %[x0], %[t], %[x1], lsl #16",
    "pkhtb %[x1], %[x1], %[t], asr #16", *ROWS_OF_BYTES,
]  # fmt: skip


def _dot_1x4(weight: str, zeros: str, four: list[str]) -> Iterator[str]:
    yield f"""
    int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    const {weight} *w = weights, *const all = weights + n * 16;
    const uint32_t zeros = {zeros};
    uint32_t t, x0, x1, w0, w1;
    if (w != all) __asm__ volatile("""
    yield loop(four, 1, ["cmp %[w], %[last]"])
    yield """\
        : [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3), [x] "+r"(x), [w] "+r"(w),
          [t] "=&r"(t), [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0), [w1] "=&r"(w1)
        : [zeros] "r"(zeros), [last] "r"(all)
        : "memory", "cc");
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;"""


def _spread_u8() -> Iterator[str]:
    yield """
    const uint32_t zeros = (uint16_t)-zero * 0x10001u;
    const uint8_t *const last = x + n * 4;
    int16_t *to = columns;
    uint32_t a, b;
    if (x != last) __asm__ volatile("""
    yield loop(_BYTES, 1, ["cmp %[x], %[last]"])
    yield """\
        : [x] "+r"(x), [to] "+r"(to), [a] "=&r"(a), [b] "=&r"(b)
        : [zeros] "r"(zeros), [last] "r"(last)
        : "memory", "cc");"""


def _spread_16() -> Iterator[str]:
    yield """
    const int16_t *const last = x + n * 4;
    int16_t *to = columns;
    uint32_t a, b, c;
    if (x != last) __asm__ volatile("""
    yield loop(_HALVES, 1, ["cmp %[x], %[last]"])
    yield """\
        : [x] "+r"(x), [to] "+r"(to), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c)
        : [last] "r"(last)
        : "memory", "cc");"""


_TAP = [
    "ldr %[o], [%[x]]", "uxtab16 %[e], %[zeros], %[o]", "uxtab16 %[o], %[zeros], %[o], ror #8",
    "ldrd %[u], %[v], [%[w]], #8",
    "smlabb %[s0], %[e], %[u], %[s0]", "smlatt %[s2], %[e], %[u], %[s2]",
    "smlabb %[s1], %[o], %[v], %[s1]", "smlatt %[s3], %[o], %[v], %[s3]",
    "add %[x], %[x], %[right]",
]  # fmt: skip
"""One place of a window."""


def _depthwise_u8() -> Iterator[str]:
    yield """
    int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    const int16_t *w = weights;
    const uint32_t zeros = (uint16_t)-zero * 0x10001u;
    uint32_t e, o, u, v;
    for (int32_t i = 0; i < rows; i++, x += down - right * columns, w += 4 * (wide - columns))"""
    for condition, times in (
        ("if (columns == 3)", 3),
        ("else for (int32_t j = 0; j < columns; j++)", 1),
    ):
        yield f"        {condition} __asm__ volatile("
        yield assembly([line for _ in range(times) for line in _TAP])
        yield """\
            : [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3), [w] "+r"(w),
              [e] "=&r"(e), [o] "=&r"(o), [u] "=&r"(u), [v] "=&r"(v), [x] "+r"(x)
            : [zeros] "r"(zeros), [right] "r"(right)
            : "memory", "cc");"""
    yield "    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;"


_N = Sym("n")
_TAPS = Sym("rows") * Sym("columns")


def _text(routine: Function, lines: Iterator[str], inner: list[str], times: Index) -> RoutineText:
    return RoutineText(routine, *WHERE, routine_text(lines), inner=tuple(inner), times=times)


_U8_ZEROS = "(uint16_t)-zero * 0x10001u"

ROUTINES = (
    _text(SPREAD_U8, _spread_u8(), _BYTES, _N),
    _text(SPREAD_16, _spread_16(), _HALVES, _N),
    _text(DOT_3X2_HALVES, columns_by_rows("int16_t", _FOUR), _FOUR, _N),
    _text(DOT_1X4_U8, _dot_1x4("int16_t", _U8_ZEROS, _BYTES_OF_ONE), _BYTES_OF_ONE, _N),
    _text(DOT_1X4_16, _dot_1x4("int8_t", "0", _HALVES_OF_ONE), _HALVES_OF_ONE, _N),
    _text(DEPTHWISE_4_U8, _depthwise_u8(), _TAP, _TAPS),
)
