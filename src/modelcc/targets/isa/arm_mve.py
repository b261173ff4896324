"""Helium, the vector extension of 32-bit Arm (Cortex-M55): sixteen products of bytes at once.

Vectors that reach beyond the last element are loaded under a predicate, which gives zeros there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelcc.ir.index import Index, Sym, floordiv
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.targets.isa.templates import CTemplate, Encoding, RoutineText, assembly

VECTOR = 16
"""Bytes of a vector."""

ROWS = 4
"""Rows of weights whose sums are made at once."""

CHANNELS = 8
"""Channels of a window that are summed at once."""

_MACROS = "__ARM_FEATURE_MVE", "__OPTIMIZE__"
"""Without optimisation a register is kept for the frame, and too few are left."""


def _rows_meaning(pixels: int) -> Iterator[str]:
    sums = [(p, r) for r in range(ROWS) for p in range(pixels)]
    yield "for o in 0 .. blocks {"
    yield from (f"register %s{p}{r} = load %bias[{ROWS}*o + {r}]" for p, r in sums)
    yield "for k in 0 .. n {"
    yield from (f"let %v{p} = convert[i32](load %x{p}[k])" for p in range(pixels))
    for r in range(ROWS):
        place = f"64*o*((n + 15) floordiv 16) + 64*(k floordiv 16) + k mod 16 + {VECTOR * r}"
        yield f"let %w{r} = convert[i32](load %weights[{place}])"
    yield from (f"%s{p}{r} = muladd(%v{p}, %w{r}, %s{p}{r})" for p, r in sums)
    yield "}"
    yield from (f"store %sums[{ROWS * p}*blocks + {ROWS}*o + {r}] = %s{p}{r}" for p, r in sums)
    yield "}"


def _rows_routine(pixels: int) -> Function:
    taken = ", ".join(f"%x{p}: i8[n]" for p in range(pixels))
    body = "\n".join(_rows_meaning(pixels))
    return parse_function(f"""
func @mve_rows_by_{pixels}({taken}, %weights: i8[64*blocks*((n + 15) floordiv 16)],
    %bias: i32[{ROWS}*blocks], %sums: mut i32[{ROWS * pixels}*blocks]; n, blocks) {{
{body}
}}
""")


ROWS_BY_1, ROWS_BY_2 = _rows_routine(1), _rows_routine(2)
"""Biases plus products of columns of ``n`` bytes by blocks of four rows of weights: sixteen bytes
of each of four rows follow each other.  The sums of a column follow each other."""

DEPTHWISE_8 = parse_function("""
func @mve_depthwise(%x: i8[down*rows - down + right*columns - right + n],
    %weights: i8[8*taps*((n + 7) floordiv 8) - 8*taps + 8*pitch*rows - 8*pitch + 8*columns],
    %bias: i32[8*((n + 7) floordiv 8)], %sums: mut i32[8*((n + 7) floordiv 8)];
    n, rows, columns, down, right, taps, pitch, zero) {
  for b in 0 .. (n + 7) floordiv 8 {
    for c in 0 .. 8 {
      register %s = load %bias[8*b + c]
      if predicate(8*b + c < n) {
        for i in 0 .. rows {
          for j in 0 .. columns {
            let %x0 = convert[i32](load %x[8*b + c + down*i + right*j])
            let %v = sub(%x0, index[i32](zero - 128))
            let %w = convert[i32](load %weights[8*taps*b + 8*pitch*i + 8*j + c])
            %s = muladd(%v, %w, %s)
          }
        }
      }
      store %sums[8*b + c] = %s
    }
  }
}
""")
"""Biases plus products of a part of a window of ``n`` channels, bytes less ``zero - 128``, by
weights of their own: of eight channels, ``taps`` places follow each other, ``pitch`` in a row."""

COPY = parse_function("""
func @mve_copy(%x: i8[n], %y: mut i8[n]; n) {
  for k in 0 .. n {
    store %y[k] = load %x[k]
  }
}
""")

FILL = parse_function("""
func @mve_fill(%y: mut i8[n]; n, value) {
  for k in 0 .. n {
    store %y[k] = index[i8](value - 128)
  }
}
""")
"""Every byte is ``value - 128``."""


def _products(pixels: int) -> list[str]:
    """Of what is loaded of columns, by vectors of four rows."""
    found: list[str] = []
    for r in range(ROWS):
        w = f"q{pixels + r % 2}"
        found.append(f"vldrb.u8 {w}, [%[w]], #16")
        found += [f"vmladava.s8 %[s{p}{r}], q{p}, {w}" for p in range(pixels)]
    return found


def _rows(pixels: int) -> Iterator[str]:
    """Sums are in even registers, where the instruction wants them."""
    sums = [f"s{p}{r}" for p in range(pixels) for r in range(ROWS)]
    columns = [f"c{p}" for p in range(pixels)]
    loads = [f"vldrb{{}}.u8 q{p}, [%[c{p}]]{{}}" for p in range(pixels)]
    yield """
    const int8_t *w = weights;
    for (int32_t o = 0; o < blocks; o++, bias += 4, sums += 4) {"""
    for p in range(pixels):
        starts = ", ".join(f"s{p}{r} = bias[{r}]" for r in range(ROWS))
        yield f"        int32_t {starts};"
    yield "        int32_t left = n;"
    yield f"        const int8_t *{', *'.join(f'c{p} = x{p}' for p in range(pixels))};"
    yield "        __asm__ volatile("
    whole = [load.format("", ", #16") for load in loads]
    part = [load.format("t", "") for load in loads]
    yield assembly(
        [
            "subs %[left], #16", "blt 2f", "1:", *whole, *_products(pixels),
            "subs %[left], #16", "bge 1b", "2:", "adds %[left], #16", "beq 3f",
            "vctp.8 %[left]", "vpst" + "t" * (pixels - 1), *part, *_products(pixels), "3:",
        ]
    )  # fmt: skip
    outputs = [f'[{s}] "+Te"({s})' for s in sums]
    outputs += [f'[{c}] "+r"({c})' for c in (*columns, "w", "left")]
    lines = (", ".join(outputs[at : at + ROWS]) for at in range(0, len(outputs), ROWS))
    yield "        : " + ",\n          ".join(lines)
    used = ", ".join(f'"q{n}"' for n in range(pixels + 2))
    yield f"""\
        :
        : {used}, "memory", "cc");"""
    for p in range(pixels):
        at = f"{ROWS * p} * blocks + " if p else ""
        yield from (f"        sums[{at}{r}] = s{p}{r};" for r in range(ROWS))
    yield "    }"


_TAP = [
    "vldrb{}.s16 q2, [%[p]]", "vldrb.s16 q3, [%[w]], #8", "vadd.i16 q2, q2, %[minus]",
    "vmullb.s16 q4, q2, q3", "vadd.i32 q0, q0, q4", "vmullt.s16 q5, q2, q3", "vadd.i32 q1, q1, q5",
    "add %[p], %[right]",
]  # fmt: skip
"""One place of a window: channels of even numbers in q0, of odd ones in q1."""


def _depthwise() -> Iterator[str]:
    """Windows of three columns have no inner loop."""
    yield """
    const int32_t minus = 128 - zero, beside = 8 * (pitch - columns);
    const int32_t below = down - right * columns;
    for (; n > 0; n -= 8, x += 8, weights += 8 * taps, bias += 8, sums += 8) {
        const int8_t *p = x, *w = weights;
        int32_t i = rows;
        if (n >= 8 && columns == 3)
            __asm__ volatile("""
    first = ["vld20.32 {q0, q1}, [%[bias]]", "vld21.32 {q0, q1}, [%[bias]]"]
    next_row = ["add %[p], %[below]", "add %[w], %[beside]", "subs %[i], #1", "bne 1b"]
    last = ["vst20.32 {q0, q1}, [%[sums]]", "vst21.32 {q0, q1}, [%[sums]]"]
    tap = [line.format("") for line in _TAP]
    yield assembly([*first, "1:", *tap, *tap, *tap, *next_row, *last])
    operands = """\
            : [p] "+l"(p), [w] "+l"(w), [i] "+r"(i)
            : [right] "r"(right), [minus] "r"(minus), [below] "r"(below), [beside] "r"(beside),
              [bias] "r"(bias), [sums] "r"(sums){}
            : "q0", "q1", "q2", "q3", "q4", "q5", "lr", "memory", "cc");"""
    yield operands.format("")
    yield """\
        else if (rows > 0 && columns > 0)
            __asm__ volatile("""
    some = [line.format("t") for line in _TAP]
    inner = ["dls lr, %[columns]", "2:", "vpst", *some, "le lr, 2b"]
    # In a register, the number would be one more than GCC finds room for in some programs.
    yield assembly(["ldr lr, %[n]", "vctp.16 lr", *first, "1:", *inner, *next_row, *last])
    yield operands.format(', [columns] "r"(columns), [n] "m"((const int32_t){n})')
    yield """\
        else
            for (i = 0; i < 8; i++)
                sums[i] = bias[i];
    }"""


def _moved(lines: Sequence[str], operands: str) -> Iterator[str]:
    """Vectors after the other, the last one as far as there are bytes."""
    yield "    __asm__ volatile("
    yield assembly(["wlstp.8 lr, %[n], 2f", "1:", *lines, "letp lr, 1b", "2:"])
    yield operands
    yield '        : "q0", "lr", "memory", "cc");'


def _copy() -> Iterator[str]:
    lines = ["vldrb.u8 q0, [%[x]], #16", "vstrb.u8 q0, [%[y]], #16"]
    yield from _moved(lines, '        : [x] "+r"(x), [y] "+r"(y)\n        : [n] "r"(n)')


def _fill() -> Iterator[str]:
    operands = '        : [y] "+r"(y)\n        : [n] "r"(n), [value] "r"(value - 128)'
    yield "    __asm__ volatile("
    yield assembly(
        [
            "vdup.8 q0, %[value]", "wlstp.8 lr, %[n], 2f", "1:", "vstrb.u8 q0, [%[y]], #16",
            "letp lr, 1b", "2:",
        ]
    )  # fmt: skip
    yield operands
    yield '        : "q0", "lr", "memory", "cc");'


def _text(
    routine: Function, lines: Iterator[str], inner: Sequence[str], times: Index
) -> RoutineText:
    template = CTemplate("", _MACROS, "\n".join(lines))
    return RoutineText(routine, "arm", ("+mve",), template, True, tuple(inner), times)


def _step(pixels: int) -> list[str]:
    """An iteration of ``_rows``."""
    loads = [f"vldrb.u8 q{p}, [c{p}], #16" for p in range(pixels)]
    return [*loads, *_products(pixels), "subs left, #16", "bge 1b"]


def _vectors(size: Index, bytes_: int = VECTOR) -> Index:
    return floordiv(size + (bytes_ - 1), bytes_)


_N = Sym("n")
_TAPS = Sym("rows") * Sym("columns") * _vectors(_N, CHANNELS)
_MOVE = "vldrb.u8 q0, [x], #16", "vstrb.u8 q0, [y], #16", "letp lr, 1b"


ENCODINGS: tuple[Encoding, ...] = ()

ROUTINES = (
    _text(ROWS_BY_1, _rows(1), _step(1), Sym("blocks") * _vectors(_N)),
    _text(ROWS_BY_2, _rows(2), _step(2), Sym("blocks") * _vectors(_N)),
    _text(DEPTHWISE_8, _depthwise(), _TAP, _TAPS),
    _text(COPY, _copy(), _MOVE, _vectors(_N)),
    _text(FILL, _fill(), _MOVE[1:], _vectors(_N)),
)
