"""The DSP extension of 32-bit Arm (Cortex-M4, M7, M33): two products of 16 bits in one instruction.

Compilers run out of registers in loops of these, so whole inner loops are in assembly.  What they
read as words lies at multiples of four bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelcc.ir.index import Sym
from modelcc.ir.instructions import LANE
from modelcc.ir.loop import Const, Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import I32
from modelcc.targets.isa.templates import CTemplate, Encoding, RoutineText, assembly

_MACRO = "__ARM_FEATURE_DSP"

_A, _B = Load("a", LANE, I32), Load("b", LANE, I32)

SMMULR = Instruction(
    "smmulr",
    (InstructionOperand("a", I32), InstructionOperand("b", I32)),
    ScalarCall("rounding_high_word", (_A, _B), I32),
)

_LOW, _HIGH = Const(-128, I32), Const(127, I32)

SSAT8, SSAT8_HALF = (
    Instruction(
        name,
        (InstructionOperand("a", I32),),
        ScalarCall("min", (ScalarCall("max", (value, _LOW), I32), _HIGH), I32),
    )
    for name, value in (("ssat8", _A), ("ssat8_half", ScalarCall("shr", (_A, Const(1, I32)), I32)))
)

_BYTE = ScalarCall("and", (_B, Const(255, I32)), I32)

ASR = Instruction(
    "asr",
    (InstructionOperand("a", I32), InstructionOperand("b", I32)),
    ScalarCall("shr", (_A, _BYTE), I32),
)
"""By the lowest byte, as a register has it."""


def summed(count: int, body: Sequence[str]) -> str:
    """Loops that add to ``count`` sums, which are registers meanwhile."""
    first = [f"register %s{n} = load %sums[{n}]" for n in range(count)]
    last = [f"store %sums[{n}] = %s{n}" for n in range(count)]
    return "\n".join([*first, *body, *last])


_ORDER = 0, 2, 1, 3
"""Where the elements of a four are in a column."""


def _dot_3x2_meaning() -> Iterator[str]:
    yield "for k in 0 .. n {"
    for i, place in enumerate(_ORDER):
        for c in range(2):
            yield f"let %w{c}{i} = convert[i32](load %weights[8*k + {4 * c + i}])"
        for p in range(3):
            yield f"let %x{p}{i} = convert[i32](load %columns[12*k + {4 * p + place}])"
            yield from (
                f"%s{p + 3 * c} = muladd(%x{p}{i}, %w{c}{i}, %s{p + 3 * c})" for c in (0, 1)
            )
    yield "}"


DOT_3X2 = parse_function(f"""
func @dot_3x2(%columns: i16[12*n], %weights: i8[8*n], %sums: mut i32[6]; n) {{
{summed(6, list(_dot_3x2_meaning()))}
}}
""")
"""Three columns of ``4 * n`` numbers by two rows of weights.

Fours of all columns follow each other, and within a four the second and the third number have
changed places, as the extension of bytes to halves leaves them; so do fours of the rows.
"""


def _dot_1x4_meaning() -> Iterator[str]:
    yield "for k in 0 .. n {"
    for i in range(4):
        yield f"let %v{i} = sub(convert[i32](load %x[4*k + {i}]), index[i32](zero - 128))"
        for c in range(4):
            yield f"let %w{c}{i} = convert[i32](load %weights[16*k + {4 * c + i}])"
            yield f"%s{c} = muladd(%v{i}, %w{c}{i}, %s{c})"
    yield "}"


DOT_1X4 = parse_function(f"""
func @dot_1x4(%x: i8[4*n], %weights: i8[16*n], %sums: mut i32[4]; n, zero) {{
{summed(4, list(_dot_1x4_meaning()))}
}}
""")
"""One column of bytes less ``zero - 128`` by four rows of weights, fours of which follow each
other."""

SPREAD = parse_function("""
func @spread(%x: i8[4*n], %columns: mut i16[12*n - 8]; n, zero) {
  for k in 0 .. n {
    store %columns[12*k] = sub(convert[i16](load %x[4*k]), index[i16](zero - 128))
    store %columns[12*k + 1] = sub(convert[i16](load %x[4*k + 2]), index[i16](zero - 128))
    store %columns[12*k + 2] = sub(convert[i16](load %x[4*k + 1]), index[i16](zero - 128))
    store %columns[12*k + 3] = sub(convert[i16](load %x[4*k + 3]), index[i16](zero - 128))
  }
}
""")
"""Bytes less ``zero - 128`` as one of the columns of ``dot_3x2``."""


def _depthwise_meaning() -> Iterator[str]:
    yield "for i in 0 .. rows {"
    yield "for j in 0 .. columns {"
    for c in range(4):
        x = f"load %x[down*i + right*j + {c}]"
        yield f"let %v{c} = sub(convert[i32]({x}), index[i32](zero - 128))"
        yield f"let %w{c} = convert[i32](load %weights[4*wide*i + 4*j + {c}])"
        yield f"%s{c} = muladd(%v{c}, %w{c}, %s{c})"
    yield "}"
    yield "}"


_WINDOW = """%x: i8[down*rows - down + right*columns - right + 4],
                  %weights: i8[4*wide*rows - 4*wide + 4*columns], %sums: mut i32[4]"""

DEPTHWISE_4 = parse_function(f"""
func @depthwise_4({_WINDOW};
                  rows, columns, wide, down, right, zero) {{
{summed(4, list(_depthwise_meaning()))}
}}
""")
"""Windows of four channels, bytes less ``zero - 128``, by weights of their own.

These are the first ``columns`` of rows of ``wide`` ones.
"""

DEPTHWISE_REST = parse_function(f"""
func @depthwise_rest({_WINDOW};
                  rows, columns, wide, down, right, zero, rest) {{
  for i in 0 .. rows {{
    for j in 0 .. columns {{
      for c in 0 .. rest {{
        let %v = sub(convert[i32](load %x[down*i + right*j + c + 4 - rest]), index[i32](zero - 128))
        let %w = convert[i32](load %weights[4*wide*i + 4*j + c])
        store %sums[c] = muladd(%v, %w, load %sums[c])
      }}
    }}
  }}
}}
""")
"""As ``depthwise_4``, of the last ``rest`` of four channels (fewer than four), whose weights and
sums come first."""


def loop(lines: Sequence[str], times: int, test: Sequence[str]) -> str:
    """``times`` as many steps to an iteration."""
    return assembly(["1:", f".rept {times}", *lines, ".endr", *test, "bne 1b"])


_FOUR = [
    "ldrd %[x], %[y], [%[w]], #8", "ldrd %[t], %[u], [%[p]], #24",
    "sxtb16 %[e], %[x]", "sxtb16 %[x], %[x], ror #8",
    "smlad %[a0], %[e], %[t], %[a0]", "smlad %[a0], %[x], %[u], %[a0]",
    "sxtb16 %[f], %[y]", "sxtb16 %[y], %[y], ror #8",
    "smlad %[b0], %[f], %[t], %[b0]", "smlad %[b0], %[y], %[u], %[b0]",
    "ldrd %[t], %[u], [%[p], #-16]",
    "smlad %[a1], %[e], %[t], %[a1]", "smlad %[a1], %[x], %[u], %[a1]",
    "smlad %[b1], %[f], %[t], %[b1]", "smlad %[b1], %[y], %[u], %[b1]",
    "ldrd %[t], %[u], [%[p], #-8]",
    "smlad %[a2], %[e], %[t], %[a2]", "smlad %[a2], %[x], %[u], %[a2]",
    "smlad %[b2], %[f], %[t], %[b2]", "smlad %[b2], %[y], %[u], %[b2]",
]  # fmt: skip
"""Four steps of three columns and two rows, in all registers that there are."""


def columns_by_rows(weight: str, four: Sequence[str]) -> Iterator[str]:
    """Of weights of a type of C.  What the end is compared with is on the stack: all registers are
    taken."""
    yield f"""
    int32_t a0 = sums[0], a1 = sums[1], a2 = sums[2], b0 = sums[3], b1 = sums[4], b2 = sums[5];
    const int16_t *p = columns;
    const {weight} *w = weights;
    uint32_t x, y, u, e, f;"""
    for count, last in ((4, "weights + n / 4 * 32"), (1, "weights + n * 8")):
        yield f"    const {weight} *t{count} = {last};"
        yield f"    if (w != t{count}) __asm__ volatile("
        yield assembly(["push {%[t]}"])
        yield loop(four, count, ["ldr %[t], [sp]", "cmp %[w], %[t]"])
        yield assembly(["add sp, #4"])
        yield f"""\
        : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [b0] "+r"(b0), [b1] "+r"(b1),
          [b2] "+r"(b2), [p] "+r"(p), [w] "+r"(w), [t] "+r"(t{count}), [x] "=&r"(x),
          [y] "=&r"(y), [u] "=&r"(u), [e] "=&r"(e), [f] "=&r"(f)
        :
        : "memory", "cc");"""
    yield """\
    sums[0] = a0, sums[1] = a1, sums[2] = a2, sums[3] = b0, sums[4] = b1, sums[5] = b2;"""


_ROW = [
    "sxtb16 %[t], %[w{c}]", "sxtb16 %[w{c}], %[w{c}], ror #8",
    "smlad %[s{c}], %[t], %[x0], %[s{c}]", "smlad %[s{c}], %[w{c}], %[x1], %[s{c}]",
]  # fmt: skip

ROWS_OF_BYTES = [
    "ldrd %[w0], %[w1], [%[w]], #16",
    *(line.format(c=c) for c in (0, 1) for line in _ROW),
    "ldrd %[w0], %[w1], [%[w], #-8]",
    *(line.format(c=c).replace("w2", "w0").replace("w3", "w1") for c in (2, 3) for line in _ROW),
]  # fmt: skip
"""Four rows of weights by four steps of a column, in x0 and x1."""

_FOUR_OF_ONE = [
    "ldr %[t], [%[x]], #4",
    "sxtab16 %[x0], %[zeros], %[t]", "sxtab16 %[x1], %[zeros], %[t], ror #8",
    *ROWS_OF_BYTES,
]  # fmt: skip


def _dot_1x4() -> Iterator[str]:
    yield """
    int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    const int8_t *w = weights, *const most = weights + n / 4 * 64, *const all = weights + n * 16;
    const uint32_t zeros = (uint16_t)(128 - zero) * 0x10001u;
    uint32_t t, x0, x1, w0, w1;"""
    for count, last in ((4, "most"), (1, "all")):
        yield f"    if (w != {last}) __asm__ volatile("
        yield loop(_FOUR_OF_ONE, count, ["cmp %[w], %[last]"])
        yield f"""\
        : [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3), [x] "+r"(x), [w] "+r"(w),
          [t] "=&r"(t), [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0), [w1] "=&r"(w1)
        : [zeros] "r"(zeros), [last] "r"({last})
        : "memory", "cc");"""
    yield "    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;"


_SPREAD = [
    "ldr %[a], [%[x]], #4", "sxtab16 %[b], %[zeros], %[a]",
    "sxtab16 %[a], %[zeros], %[a], ror #8", "strd %[b], %[a], [%[to]], #24",
]  # fmt: skip


def _spread() -> Iterator[str]:
    yield """
    const uint32_t zeros = (uint16_t)(128 - zero) * 0x10001u;
    const int8_t *const last = x + n * 4;
    int16_t *to = columns;
    uint32_t a, b;
    if (n % 2) __asm__ volatile("""
    head = """\
        : [x] "+r"(x), [to] "+r"(to), [a] "=&r"(a), [b] "=&r"(b)
        : [zeros] "r"(zeros), [last] "r"(last)
        : "memory", "cc");"""
    yield assembly(_SPREAD)
    yield head
    yield "    if (x != last) __asm__ volatile("
    yield loop(_SPREAD, 2, ["cmp %[x], %[last]"])
    yield head


_TAP = [
    "sxtab16 %[e], %[zeros], %[o]", "sxtab16 %[o], %[zeros], %[o], ror #8",
    "ldr %[v], [%[w]], #4", "sxtb16 %[u], %[v]", "sxtb16 %[v], %[v], ror #8",
    "smlabb %[s0], %[e], %[u], %[s0]", "smlatt %[s2], %[e], %[u], %[s2]",
    "smlabb %[s1], %[o], %[v], %[s1]", "smlatt %[s3], %[o], %[v], %[s3]",
]  # fmt: skip
"""One place of a window, whose four bytes are in ``o``."""

_REST_TAP = ["lsr %[o], %[o], %[shift]", *_TAP[:-1]]
"""The same of the last of four bytes, which are at most three."""

_PLACES = "[%[x]]", "[%[x], %[right]]", "[%[x], %[right], lsl #1]"


def _depthwise(tap: Sequence[str], sums: int, more: str) -> Iterator[str]:
    """Windows of 3 x 3 by one run of instructions, others place by place."""
    names = ", ".join(f"s{n} = sums[{n}]" for n in range(sums))
    yield f"""
    int32_t {names};
    const int8_t *w = weights;
    const uint32_t zeros = (uint16_t)(128 - zero) * 0x10001u;
    uint32_t e, o, u, v;
    if (rows == 3 && columns == 3 && wide == 3) {{
        __asm__ volatile("""
    registers = "".join(f'[s{n}] "+r"(s{n}), ' for n in range(sums))
    outputs = f"""\
        : {registers}[w] "+r"(w),
          [e] "=&r"(e), [o] "=&r"(o), [u] "=&r"(u), [v] "=&r"(v), [x] "+r"(x)"""
    row = [line for place in _PLACES for line in (f"ldr %[o], {place}", *tap)]
    yield assembly([".rept 3", *row, "add %[x], %[x], %[down]", ".endr"])
    yield f"""{outputs}
        : [zeros] "r"(zeros), [right] "r"(right), [down] "r"(down){more}
        : "memory");
    }} else for (int32_t i = 0; i < rows; i++, x += down, w += (wide - columns) * 4) {{
        int32_t n = columns;
        __asm__ volatile("""
    place = ["ldr %[o], [%[x]]", *tap, "add %[x], %[x], %[right]"]
    yield assembly(["1:", *place, "subs %[n], #1", "bne 1b"])
    yield f"""{outputs}, [n] "+r"(n)
        : [zeros] "r"(zeros), [right] "r"(right){more}
        : "memory", "cc");
        x -= right * columns;
    }}"""


def _depthwise_4() -> Iterator[str]:
    yield from _depthwise(_TAP, 4, "")
    yield "    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;"


def _depthwise_rest() -> Iterator[str]:
    yield "    const int32_t shift = 32 - 8 * rest;"
    yield from _depthwise(_REST_TAP, 3, ', [shift] "r"(shift)')
    yield """\
    sums[0] = s0;
    if (rest > 1) sums[1] = s1;
    if (rest > 2) sums[2] = s2;"""


def routine_text(lines: Iterator[str]) -> CTemplate:
    """Of a loop that leaves no register for a frame, which code without optimisation has."""
    return CTemplate("", (_MACRO, "__OPTIMIZE__"), "\n".join(lines))


WHERE = ("arm", ("+dsp",))


def _one(instruction: Instruction, text: str, inputs: str) -> Encoding:
    """An instruction of all Cortex-M that have it, on registers."""
    lines = (
        "int32_t d;",
        f'__asm__("{text}" : "=r"(d) : {inputs});',
        "return d;",
    )
    return Encoding(
        instruction, 1, *WHERE, (text.split()[0],), c=CTemplate("", (_MACRO,), "\n".join(lines))
    )


ENCODINGS = (
    _one(SMMULR, "smmulr %0, %1, %2", '"r"(a), "r"(b)'),
    _one(SSAT8, "ssat %0, #8, %1", '"r"(a)'),
    _one(SSAT8_HALF, "ssat %0, #8, %1, asr #1", '"r"(a)'),
    _one(ASR, "asr %0, %1, %2", '"r"(a), "r"(b)'),
)

_N, _TAPS = Sym("n"), Sym("rows") * Sym("columns")

ROUTINES = (
    RoutineText(
        DOT_3X2,
        *WHERE,
        routine_text(columns_by_rows("int8_t", _FOUR)),
        inner=tuple(_FOUR),
        times=_N,
    ),
    RoutineText(DOT_1X4, *WHERE, routine_text(_dot_1x4()), inner=tuple(_FOUR_OF_ONE), times=_N),
    RoutineText(
        DEPTHWISE_4, *WHERE, routine_text(_depthwise_4()), inner=("ldr o, [x]", *_TAP), times=_TAPS
    ),
    RoutineText(
        DEPTHWISE_REST,
        *WHERE,
        routine_text(_depthwise_rest()),
        inner=("ldr o, [x]", *_REST_TAP),
        times=_TAPS,
    ),
    RoutineText(SPREAD, *WHERE, routine_text(_spread()), inner=tuple(_SPREAD), times=_N),
)
