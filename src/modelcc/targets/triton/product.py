"""Sums of products as ``tl.dot`` of tiles, with an element-wise epilogue.

Axes that only the left factor moves along are rows, those that only the right one does columns;
those of both factors are the batch.  Convolutions are products with computed indices of one factor
(implicit GEMM); padding is a mask of its loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import product, symbols
from modelcc.ir.scalar_tree import index_symbols
from modelcc.ir.tensor import Apply, Axis, Cast, Condition, Guard, Number, Read, Scalar, Stage
from modelcc.ir.types import BF16, F16, F32, I8, I32, DType
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.structure import neutral_guards
from modelcc.targets.triton.block import BlockCode
from modelcc.targets.triton.functions import element
from modelcc.targets.triton.kernel import Config, TritonKernel, code_of, finish, size, stored_by_now

_TYPES = (F32, F16, BF16)


def _config(m: int, n: int, k: int, warps: int, stages: int) -> Config:
    sizes = (("BLOCK_M", m), ("BLOCK_N", n), ("BLOCK_K", k))
    return (*sizes, ("num_warps", warps), ("num_stages", stages))


CONFIGS = (
    _config(64, 64, 32, 4, 3),
    _config(128, 128, 32, 8, 3),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(32, 64, 64, 4, 3),
    _config(16, 64, 128, 4, 3),
)


@dataclass(frozen=True)
class Factors:
    """Factors of a product, ``left`` along rows and ``right`` along columns, accumulated as
    ``dtype``."""

    left: Scalar
    right: Scalar
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    dtype: DType


def find_factors(stage: Stage) -> Factors | None:
    """The product that a stage sums, if tiles of its factors can be multiplied."""
    if stage.combine != "sum" or not stage.reduce:
        return None
    conditions, body = neutral_guards(stage.body, "sum", stage.body.dtype)
    if not (isinstance(body, Apply) and body.function == "mul"):
        return None
    left, right = map(_narrow, body.args)
    if left.dtype != right.dtype or (left.dtype, stage.body.dtype) not in (
        *((t, t) for t in _TYPES), (F16, F32), (BF16, F32), (I8, I32),
    ):  # fmt: skip
        return None
    moving = index_symbols(left), index_symbols(right)
    rows = tuple(a for a in stage.axes if a.name in moving[0] - moving[1])
    columns = tuple(a for a in stage.axes if a.name in moving[1] - moving[0])
    if not rows or not columns:
        return None
    terms = {a.name for a in stage.reduce}
    batch = tuple(a for a in stage.axes if a not in rows and a not in columns)
    free = {a.name for a in batch} | terms
    for side in conditions:
        named = symbols(side.left) | symbols(side.right)
        if named & {a.name for a in stage.axes} <= {a.name for a in rows} | free:
            left = _with(side, left)
        elif named & {a.name for a in stage.axes} <= {a.name for a in columns} | free:
            right = _with(side, right)
        else:
            return None
    return Factors(left, right, rows, columns, batch, stage.body.dtype)


def _narrow(factor: Scalar) -> Scalar:
    """Without a lossless conversion, which ``tl.dot`` does anyway."""
    if not (isinstance(factor, Cast) and isinstance(factor.value, Read)):
        return factor
    exact = (factor.value.dtype, factor.dtype) in ((F16, F32), (BF16, F32), (I8, I32))
    return factor.value if exact else factor


def _with(condition: Condition, factor: Scalar) -> Scalar:
    if isinstance(factor, Guard):
        both = (*factor.conditions, condition)
        return Guard(both, factor.inside, factor.outside, factor.dtype)
    zero = Number(0.0 if factor.dtype.is_float else 0, factor.dtype)
    return Guard((condition,), factor, zero, factor.dtype)


def product_kernel(kernel: CanonicalKernel) -> TritonKernel | None:
    """A program per tile of the result."""
    stages = shared_axes(kernel.stages)
    found = None if stages is None else find_factors(stages[0])
    if stages is None or found is None or any(s.reduce for s in stages[1:]):
        return None
    code, first = code_of(kernel), stages[0]
    m, n, k = (
        product(a.extent for a in axes) for axes in (found.rows, found.columns, first.reduce)
    )
    _grid(code, found)
    here = found.dtype if found.dtype == I32 else F32
    total = code.let("total", f"tl.zeros([BLOCK_M, BLOCK_N], {element(here)})")
    with code.loop(f"for start in range(0, {code.index(k)}, BLOCK_K):"):
        left = tile(code, found.left, first.reduce, ("m", "BLOCK_M"), 1, "start", "BLOCK_K")
        right = tile(code, found.right, first.reduce, ("n", "BLOCK_N"), 0, "start", "BLOCK_K")
        code.line(f"{total} = {dot(left, right, total, found.left.dtype)}")
    if here != found.dtype:
        total = f"{total}.to({element(found.dtype)})"
    code.values[first.output] = total
    stored_by_now(code, kernel, first)
    finish(code, kernel, stages[1:])
    rows, columns = size(m, kernel), size(n, kernel)
    count = size(product(a.extent for a in found.batch), kernel)
    several = "" if count == "1" else f" * {count}"
    grid = (f'triton.cdiv({rows}, meta["BLOCK_M"]){several}',
            f'triton.cdiv({columns}, meta["BLOCK_N"])')  # fmt: skip
    names = tuple(n for n, _ in kernel.dims)
    lines = tuple(code.lines)
    return TritonKernel("product", lines, grid, (), CONFIGS, names, code.checked)


def _grid(code: BlockCode, found: Factors) -> None:
    """Rows and columns of this program, and its index in the batch."""
    m, n = (code.index(product(a.extent for a in axes)) for axes in (found.rows, found.columns))
    count = product(a.extent for a in found.batch)
    tile_ = code.program(0)
    if count != 1:
        batch = code.let("batch", f"{tile_} // tl.cdiv({m}, BLOCK_M)")
        tile_ = f"({tile_} % tl.cdiv({m}, BLOCK_M))"
        code.flat(found.batch, batch, "", "")
    row = code.let("row", f"{tile_} * BLOCK_M + {code.arange('BLOCK_M', '[:, None]')}")
    column = code.let(
        "column", f"{code.program(1)} * BLOCK_N + {code.arange('BLOCK_N', '[None, :]')}"
    )
    inside = [code.let(f"{v}_in", f"{v} < {e}") for v, e in ((row, m), (column, n))]
    code.along("m", row)
    code.along("n", column)
    code.flat(found.batch if count == 1 else (), "0", "", "")
    code.flat(found.rows, row, inside[0], "m")
    code.flat(found.columns, column, inside[1], "n")


def tile(
    code: BlockCode,
    factor: Scalar,
    terms: Sequence[Axis],
    kept: tuple[str, str],
    dimension: int,
    start: str,
    block: str,
) -> str:
    """A tile of a factor: along its own dimension, and along ``terms`` in ``dimension``."""
    with code.scope():
        code.keep(kept[0])
        shape = "[None, :]" if dimension else "[:, None]"
        begin = f"{start} + " if start else ""
        term = code.let("term", begin + code.arange(block, shape))
        count = product(a.extent for a in terms)
        inside = code.let("term_in", f"{term} < {code.index(count)}")
        code.along("k", term)
        code.flat(terms, term, inside, "k")
        value = code.value(factor)
        whole = [kept[1], block] if dimension else [block, kept[1]]
        moved = set(code.dims_of(index_symbols(factor)))
        if not _is_load(factor):
            mask = f"{inside} & {kept_mask(code, kept[0])}"
            zero = "0.0" if factor.dtype.is_float else "0"
            value = f"tl.where({mask}, {value}, {zero})"
        elif moved != {"k", kept[0]}:
            value = f"tl.broadcast_to({value}, [{', '.join(whole)}])"
        return code.let("left" if dimension else "right", value)


def kept_mask(code: BlockCode, dim: str) -> str:
    """The mask of a dimension of the block."""
    return next(p.mask for p in code.places.values() if p.dims == dim and p.mask)


def _is_load(factor: Scalar) -> bool:
    """Whether elements outside of the factor are loaded as 0."""
    if isinstance(factor, Guard):
        return isinstance(factor.inside, Read) and _is_zero(factor.outside)
    return isinstance(factor, Read)


def _is_zero(scalar: Scalar) -> bool:
    return isinstance(scalar, Number) and scalar.value == 0


def dot(left: str, right: str, total: str, dtype: DType) -> str:
    """``total`` plus the product of two tiles; f32 stays f32."""
    exact = ', input_precision="ieee"' if dtype == F32 else ""
    kind = ", out_dtype=tl.int32" if dtype == I8 else ""
    return f"tl.dot({left}, {right}, {total}{exact}{kind})"
