"""What schedules are expected to take is no less than what their functions do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fused_kernels import program_of

from modelcc.ir.tensor import Kernel
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupAttention, GroupProduct, GroupRows, Pointwise
from modelcc.targets.gpu.attention.attention_choice import BLOCKS, attention_bytes
from modelcc.targets.gpu.attention.attention_parts import find_attention
from modelcc.targets.gpu.choice import choices
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import lower_groups
from modelcc.targets.gpu.machine import A100, H100, PROCESSOR
from modelcc.targets.llvm.groups import shared_bytes


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
def test_attention_takes_the_shared_memory_that_is_planned(blocks: GroupAttention) -> None:
    program = program_of("attention")
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = GroupKernel(canonical(item, program.types, frozenset(), program.dims)[0], "k")
    planned = attention_bytes(blocks, find_attention(kernel))
    taken = shared_bytes(lower_groups(kernel, blocks))
    assert taken <= planned <= 1.1 * taken


@pytest.mark.parametrize(("rows", "terms", "results"), [(32, 8, 16), (64, 512, 64)])
def test_tiles_are_no_larger_than_pays_where_much_follows(
    rows: int, terms: int, results: int
) -> None:
    """Of 32 rows half of a tile of 64 is empty, and what follows takes longer than the sums."""
    follows = "%s[i, j]"
    for _ in range(8):
        follows = f"min(max({follows} * 0.5, -1.0), 1.0)"
    text = f"""
        program @main(%a: f32[{rows}, {terms}], %b: f32[{terms}, 512]) -> (%y) dims() {{
          kernel @f(%a: f32[{rows}, {terms}], %b: f32[{terms}, 512]) -> (%y: f32[{rows}, 512]) {{
            %s: f32[{rows}, 512] = [i < {rows}, j < 512] sum[k < {terms}] %a[i, k] * %b[k, j]
            %y: f32[{rows}, 512] = [i < {rows}, j < 512] {follows}
          }}
        }}"""
    program = parse_tensor_program(text, {})
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = GroupKernel(canonical(item, program.types, frozenset(), program.dims)[0], "k")
    best = next(choices(kernel, PROCESSOR))
    assert isinstance(best, GroupProduct)
    assert best.thread_rows * best.thread_columns == results


@pytest.mark.parametrize(
    ("narrow", "wide", "size", "lanes"),
    [
        ("f16", "f16", 64, 8),
        ("f32", "f32", 64, 4),
        ("f16", "f32", 64, 8),
        ("f16", "f16", 12, 4),
        ("f16", "f16", 6, 2),
        ("f16", "f16", 5, 1),
    ],
)
def test_threads_move_16_bytes_at_once(narrow: str, wide: str, size: int, lanes: int) -> None:
    """Also of results whose first extent is 1, which do not lie side by side along it."""
    shape = f"1, n, {size}"
    moved = "%x[b, i, j]" if narrow == wide else f"{wide}(%x[b, i, j])"
    text = f"""program @p(%x: {narrow}[{shape}], %s: {wide}[n]) -> (%y) dims(n in 1:) {{
      kernel @k(%x: {narrow}[{shape}], %s: {wide}[n]) -> (%y: {wide}[{shape}]) {{
        %y: {wide}[{shape}] = [b < 1, i < n, j < {size}] %s[i] * {moved}
      }}
    }}"""
    program = parse_tensor_program(text, {})
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = GroupKernel(canonical(item, program.types, frozenset(), program.dims)[0], "k")
    best = next(choices(kernel, A100))
    assert isinstance(best, Pointwise) and best.lanes == lanes


FROM_TABLE = "(let at = %p[i] below [50000] in %t[at, j])"
WARPS = GroupRows(32, 4, kept=24, lanes=8, warp=32)
COLUMN_FROM_TABLE = "(let at = %p[j] below [768] in %x[i, at])"


@pytest.mark.parametrize(
    ("body", "rows", "schedule"),
    [
        ("%x[i, j]", 65536, WARPS),
        ("%x[i, j] + %c[j]", 65536, WARPS),
        (FROM_TABLE, 65536, WARPS),
        (f"{FROM_TABLE} + %x[i, j]", 65536, WARPS),
        (COLUMN_FROM_TABLE, 65536, replace(WARPS, lanes=1)),
        ("%x[i, j]", 128, replace(WARPS, rows=1, ahead=True)),
        ("%z[j, i]", 65536, GroupRows(1, 128)),
        ("%z[j, i] + %c[j]", 65536, GroupRows(1, 128)),
    ],
)
def test_threads_share_rows_that_lie_side_by_side(
    body: str, rows: int, schedule: GroupRows
) -> None:
    """Also where a stage finds elements first, which the reductions read in no memory."""
    text = f"""program @p(%x: bf16[{rows}, 768], %z: bf16[768, {rows}], %p: i64[{rows}],
        %t: bf16[50000, 768], %c: bf16[768]) -> (%y) dims() {{
      kernel @k(%x: bf16[{rows}, 768], %z: bf16[768, {rows}], %p: i64[{rows}],
        %t: bf16[50000, 768], %c: bf16[768]) -> (%y: bf16[{rows}, 768]) {{
        %v: bf16[{rows}, 768] = [i < {rows}, j < 768] {body}
        %a: f32[{rows}] = [i < {rows}] sum[j < 768] f32(%v[i, j])
        %y: bf16[{rows}, 768] = [i < {rows}, j < 768] bf16((f32(%v[i, j]) - %a[i]) * f32(%c[j]))
      }}
    }}"""
    program = parse_tensor_program(text, {})
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = GroupKernel(canonical(item, program.types, frozenset(), program.dims)[0], "k")
    assert next(choices(kernel, H100)) == schedule
