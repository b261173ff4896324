"""A kernel that multiplies tiles which are copied as boxes."""

from __future__ import annotations

from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.types import DType
from modelcc.targets.isa.tile_products import clear_sums, multiply_tiles, store_panel

TERMS = 160
ROWS, COLUMNS = 56, 40
"""Of the operands: less than a tile, more than two of terms."""

BODY = """func @product(%x: {t}[{x}], %y: {t}[{y}], %z: mut f32[4096]) {{
  grid g in 0 .. 1 {{
    tile %l: {t}[8192] align 1024
    tile %r: {t}[8192] align 1024
    arrivals %full: i64[2]
    thread lane in 0 .. 128 {{
      warp %c: f32[4096]
      run @clear_sums_64(%c[0])
      if predicate(lane == 0) {{
        {first}
      }}
      for k in 0 .. 3 {{
        await %full[k mod 2] phase k floordiv 2
        run beside @{multiply}(%c[0], %l[4096*(k mod 2)], %r[4096*(k mod 2)])
        finish 1
        barrier
        if predicate(lane == 0, k < 2) {{
          {next}
        }}
      }}
      finish 0
      unrolled p in 0 .. 4 {{
        run @store_panel(%z[16*p], %c[1024*p]; 64)
      }}
    }}
  }}
}}"""


def copies(k: str, transposed: tuple[bool, bool]) -> str:
    """Statements that bring block ``k`` of both operands."""
    slot = f"({k}) mod 2"
    lines = [f"expect %full[{slot}] bytes 16384"]
    for to, source, size, t in zip("lr", "xy", (ROWS, COLUMNS), transposed, strict=True):
        place, sizes = (f"0, 64*({k})", f"{size}, {TERMS}")
        if t:
            place, sizes = (f"64*({k}), 0", f"{TERMS}, {size}")
        stride = sizes.split(", ")[1]
        lines.append(
            f"box %{to}[4096*({slot})] = %{source}[{place}] from 0 of ({sizes}) "
            f"stride ({stride}, 1) box (64, 64) to %full[{slot}]"
        )
    return "\n".join(lines)


def product(dtype: DType, transposed: tuple[bool, bool] = (False, False)) -> Function:
    """``z = x y`` with two tiles in flight; operands that are ``transposed`` lie term by term."""
    multiply = multiply_tiles(dtype, 64, *transposed)
    text = BODY.format(
        t=dtype, x=ROWS * TERMS, y=COLUMNS * TERMS, multiply=multiply.name,
        first=copies("0", transposed), next=copies("k + 1", transposed),
    )  # fmt: skip
    used = clear_sums(64), multiply, store_panel()
    routines = (print_function(r).replace("func ", "routine ", 1) for r in used)
    return parse_function("\n".join((*routines, text)))
