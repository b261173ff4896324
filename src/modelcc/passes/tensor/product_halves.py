"""A product whose epilogue reads two columns for each result, as two products: a gate and the value
that it multiplies, whose constants are concatenated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym
from modelcc.ir.scalar_tree import reads, substitute_indices, transform
from modelcc.ir.tensor import Axis, Read, Scalar, Stage


@dataclass(frozen=True)
class Half:
    """Indices ``first`` to ``first + extent`` along dimension ``dim`` of a product's result."""

    dim: int
    first: int
    extent: Index


def product_halves(product: Sequence[Stage], later: Sequence[Stage]) -> tuple[Half, Half] | None:
    """The parts of the last tensor of ``product`` that ``later`` stages read, if these are two of
    equal extents along one dimension; otherwise None."""
    whole = product[-1]
    extents = {a.name: a.extent for a in whole.axes}
    shape = [extents[i.name] if isinstance(i, Sym) else 1 for i in whole.write]
    found = [
        _half(read, shape, stage)
        for stage in later
        for read in reads(stage.body)
        if read.tensor == whole.output
    ]
    halves = sorted({half for half in found if half is not None}, key=lambda half: half.first)
    if None in found or len(halves) != 2:
        return None
    one, other = halves
    return (one, other) if (one.dim, one.extent) == (other.dim, other.extent) else None


def _half(read: Read, shape: Sequence[Index], stage: Stage) -> Half | None:
    """The part of a tensor of ``shape`` that is read at the axes of ``stage``."""
    axes = {a.name: a.extent for a in stage.axes}
    found = list[Half]()
    for dim, (index, extent) in enumerate(zip(read.indices, shape, strict=True)):
        if isinstance(index, int):
            if extent != 1:
                return None
            continue
        first = index.const
        name = next((n for n in axes if index - first == Sym(n)), None)
        if name is None:
            return None
        if first or axes[name] != extent:
            found.append(Half(dim, first, axes[name]))
    return found[0] if len(found) == 1 else None


def stages_of_halves(
    product: Sequence[Stage],
    later: Sequence[Stage],
    halves: Sequence[Half],
    names: Sequence[Mapping[str, str]],
) -> tuple[Stage, ...] | None:
    """Both products, then the epilogue of each, and ``later``; tensors of a half are renamed by its
    ``names``.  None if an epilogue of the product moves along its columns."""
    each = [_of_half(product, half, own) for half, own in zip(halves, names, strict=True)]
    if any(not stages for stages in each):
        return None
    (first, *more), (second, *others) = each
    whole = product[-1].output
    known = {half.first: own[whole] for half, own in zip(halves, names, strict=True)}
    dim = halves[0].dim

    def visit(scalar: Scalar) -> Scalar:
        if not isinstance(scalar, Read) or scalar.tensor != whole:
            return scalar
        column = scalar.indices[dim]
        assert not isinstance(column, int)
        return _moved(scalar, known[column.const], dim, column.const)

    ends = (replace(stage, body=transform(stage.body, visit)) for stage in later)
    return (first, second, *more, *others, *ends)


def _of_half(product: Sequence[Stage], half: Half, names: Mapping[str, str]) -> tuple[Stage, ...]:
    """``product`` and its epilogue for one half; empty if they are not pointwise in columns."""
    result = list[Stage]()
    for stage in product:
        column = stage.write[half.dim]
        if not isinstance(column, Sym) or any(
            read.indices[half.dim] != column for read in reads(stage.body) if read.tensor in names
        ):
            return ()
        body = substitute_indices(stage.body, {column.name: column + half.first})

        def visit(scalar: Scalar) -> Scalar:
            if not isinstance(scalar, Read) or scalar.tensor not in names:
                return scalar
            return _moved(scalar, names[scalar.tensor], half.dim, half.first)

        axes = (Axis(a.name, half.extent) if a.name == column.name else a for a in stage.axes)
        made = transform(body, visit)
        result.append(replace(stage, output=names[stage.output], axes=tuple(axes), body=made))
    return tuple(result)


def _moved(read: Read, tensor: str, dim: int, first: int) -> Read:
    """``read`` of the half ``tensor`` instead of the whole one."""
    own = list(read.indices)
    own[dim] -= first
    return replace(read, tensor=tensor, indices=tuple(own))
