"""Loop functions as kernels that serve others, too, and what bounds them."""

from __future__ import annotations

import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.targets.vm.kernel import use_of

NO_SIZES: tuple[dict[str, int], ...] = ({},)

PADDED = """
func @padded(%x: i8[{size}], %y: mut i8[{size}]) {{
  for a in 0 .. {rows} {{
    for b in 0 .. {columns} {{
      register %v = i8({zero})
      if predicate(a - {pad} >= 0) {{
        %v = add(load %x[{columns}*a + b - {back}], i8(7))
      }}
      store %y[{columns}*a + b] = %v
    }}
  }}
}}
"""
GATHERED = """
func @gathered(%at: i32[{size}], %x: i8[256], %y: mut i8[{size}]) {{
  for a in 0 .. {size} {{
    index i = load %at[a]
    store %y[a] = load %x[{factor}i]
  }}
}}
"""


def padded(rows: int, columns: int, pad: int, zero: int) -> str:
    """An image that is moved down, whose first rows are ``zero``."""
    size, back = rows * columns, pad * columns
    return PADDED.format(rows=rows, columns=columns, pad=pad, zero=zero, size=size, back=back)


def test_one_kernel_serves_other_sizes_and_values() -> None:
    first, second = (
        use_of(parse_function(padded(*numbers)), NO_SIZES)
        for numbers in ((30, 20, 2, 83), (50, 18, 7, -5))
    )
    assert first.kernel == second.kernel
    assert first.parameters != second.parameters
    assert len(first.parameters) == len(first.kernel.function.sizes)


def test_what_no_box_bounds_is_checked_where_it_is_read() -> None:
    checks = (use_of(parse_function(padded(30, 20, n, 83)), NO_SIZES).kernel.checks for n in (2, 0))
    assert tuple(checks) == (1, 0)


def test_indices_from_memory_are_checked_or_refused() -> None:
    kernel = use_of(parse_function(GATHERED.format(size=40, factor="")), NO_SIZES).kernel
    assert kernel.checks == 1
    with pytest.raises(ModelError, match="no bounds of 32 bits"):
        use_of(parse_function(GATHERED.format(size=40, factor="4*")), NO_SIZES)
