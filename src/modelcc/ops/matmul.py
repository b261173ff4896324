"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.condition import Constraints
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ir.narrowing import PRODUCTS
from modelcc.ir.op import (
    Builder,
    Gradients,
    Meeting,
    Op,
    Values,
    broadcast_constraints,
    broadcast_shapes,
    require,
    same_dtype,
)
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import F16, I32, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_numeric, rounded, widen
from modelcc.ops.arithmetic import Value
from modelcc.ops.broadcast import Expand, reshaped, unbroadcast
from modelcc.ops.samples import sample, tensor
from modelcc.ops.shape import Transpose
from modelcc.ops.window import numbers


@dataclass(frozen=True)
class MatMul(Op):
    """Matrix product of the last two axes, leading axes broadcast; as ``numpy.matmul``."""

    narrowing = PRODUCTS
    costly: ClassVar[bool] = True
    samples = (
        sample(tensor(4, 5), tensor(5, 3)),
        sample(tensor("n", 7), tensor(7, 16)),
        sample(tensor(2, "m", "k"), tensor(2, "k", 3)),
        sample(tensor(3, 1, 2, 4), tensor(5, 4, 6)),
        sample(tensor("b", 2, 4), tensor(4, 6)),
        sample(tensor(4), tensor(4)),
        sample(tensor(4), tensor(2, 4, 3)),
        sample(tensor(2, 3, 4), tensor(4)),
        sample(tensor(3, 1), tensor(1, 2)),
        sample(tensor(3, 8, dtype=F16), tensor(8, 2, dtype=F16)),
        sample(tensor(3, 4, dtype=I32), tensor(4, 2, dtype=I32)),
    )

    def infer(self, a: TensorType, b: TensorType) -> tuple[TensorType]:
        dtype = same_dtype(a, b)
        require_numeric(dtype, "MatMul")
        require(a.rank > 0 and b.rank > 0, "MatMul needs operands of rank 1 or more")
        self.require_meetings(a, b)
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return (TensorType((*batch, *a.shape[-2:-1], *_columns(b)), dtype),)

    def shape_constraints(self, *operands: TensorType | None) -> Constraints:
        a, b = (x.shape for x in operands if x is not None)
        return (*broadcast_constraints(a[:-2], b[:-2]), *super().shape_constraints(*operands))

    def meetings(self, a: TensorType, b: TensorType) -> Iterator[Meeting]:
        yield a.shape[-1], b.shape[-2:][0], f"inner extents of {a} and {b} differ"

    def reference(self, a: Array, b: Array) -> Array:
        return np.asarray(np.matmul(widen(a), widen(b))).astype(a.dtype, copy=False)

    def compute(self, at: StageBuilder, a: Operand, b: Operand) -> Operand:
        return rounded(at, self.contract(at, a, b, accumulator(a.dtype)), a.dtype)

    def contract(self, at: StageBuilder, a: Operand, b: Operand, wide: DType) -> Operand:
        """The product in ``wide``, to which elements are cast before they are multiplied."""
        (result,) = self.infer(TensorType(a.shape, wide), TensorType(b.shape, wide))
        end = result.rank - len(_columns(b.type))
        begin = end - len(a.shape[-2:-1])

        def body(o: Point, r: Point) -> Element:
            left = a.broadcast((*o[:begin], *o[begin:end], *r))
            right = b.broadcast((*o[:begin], *r, *o[end:]))
            return left.cast(wide) * right.cast(wide)

        return combined(at, result.shape, (a.shape[-1],), "sum", body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        a, b = inputs
        left, right = build.type_of(a).shape, build.type_of(b).shape
        rows, columns = left[-2:-1] or (1,), _columns(build.type_of(b)) or (1,)
        batch = broadcast_shapes(left[:-2], right[:-2])
        matrix_a = reshaped(build, a, (*left[:-2], *rows, left[-1]))
        matrix_b = reshaped(build, b, right if len(right) > 1 else (*right, 1))
        a_type, b_type = build.type_of(matrix_a), build.type_of(matrix_b)
        dy = reshaped(build, dys[0], (*batch, *rows, *columns))
        da = build.emit(MatMul(), dy, _swapped(build, matrix_b))
        if len(right) <= 2 and batch:  # one sum over the rows of all matrices, none of products
            all_rows = product((*batch, *rows))
            matrix_a = reshaped(build, matrix_a, (all_rows, left[-1]))
            dy = reshaped(build, dy, (all_rows, *columns))
        db = build.emit(MatMul(), _swapped(build, matrix_a), dy)
        return _summed_to(build, da, a_type, left), _summed_to(build, db, b_type, right)

    def quantize(self) -> QuantizedForm:
        return QuantizedForm(weights=1, axis=-1, channel=-1)


def _swapped(build: Builder, x: str) -> str:
    rank = build.type_of(x).rank
    return build.emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), x)


def _summed_to(build: Builder, dx: str, matrix: TensorType, shape: tuple[Index, ...]) -> str:
    """``dx`` without the axes that broadcasting or vectors added to an operand of ``shape``."""
    return reshaped(build, unbroadcast(build, dx, matrix.shape), shape)


def _columns(b: TensorType) -> tuple[Index, ...]:
    return b.shape[-1:] if b.rank > 1 else ()


@dataclass(frozen=True)
class Gemm(Op):
    """``alpha * a' @ b' + beta * c``; ``a'`` is ``a`` transposed if ``trans_a``, c broadcasts."""

    narrowing = PRODUCTS
    costly: ClassVar[bool] = True
    alpha: float = 1.0
    beta: float = 1.0
    trans_a: bool = False
    trans_b: bool = False
    samples = (
        sample(tensor("n", 5), tensor(5, 3)),
        sample(tensor("n", 5), tensor(3, 5), tensor(3), trans_b=True),
        sample(tensor(5, 2), tensor(5, 3), tensor(2, 1), trans_a=True, alpha=0.5),
        sample(
            *(tensor(5, 2), tensor(3, 5), tensor(2, 3)),
            trans_a=True,
            trans_b=True,
            alpha=0.5,
            beta=-2.0,
        ),
        sample(tensor(4, 1), tensor(1, 3), tensor(), beta=0.25),
        sample(tensor(3, 8, dtype=F16), tensor(8, 2, dtype=F16), tensor(2, dtype=F16), alpha=0.5),
    )

    def infer(self, a: TensorType, b: TensorType, c: TensorType | None = None) -> tuple[TensorType]:
        dtype = same_dtype(a, b, *(() if c is None else (c,)))
        require_numeric(dtype, "Gemm")
        require(
            a.rank == 2 and b.rank == 2,
            f"Gemm multiplies matrices, not {a} and {b}",
            "reshape the operands to rank 2 or use MatMul",
        )
        self.require_meetings(a, b, c)
        shape = (_turned(a.shape, self.trans_a)[0], _turned(b.shape, self.trans_b)[1])
        if c is not None and c.rank > 2:
            raise ModelError(f"the addend {c} does not broadcast to {TensorType(shape, dtype)}")
        return (TensorType(shape, dtype),)

    def meetings(
        self, a: TensorType, b: TensorType, c: TensorType | None = None
    ) -> Iterator[Meeting]:
        (m, k), (depth, n) = _turned(a.shape, self.trans_a), _turned(b.shape, self.trans_b)
        yield k, depth, f"inner extents of {a} and {b} differ (check transA and transB)"
        for own, extent in zip(reversed(c.shape if c else ()), (n, m), strict=False):
            if own != 1:
                yield own, extent, f"the addend {c} does not broadcast to [{m}, {n}]"

    def reference(self, a: Array, b: Array, c: Array | None = None) -> Array:
        left, right = (widen(a.T if self.trans_a else a), widen(b.T if self.trans_b else b))
        product = left @ right
        if self.alpha != 1.0:
            product = product * np.asarray(self.alpha, product.dtype)
        if c is not None:
            product = product + np.asarray(self.beta, product.dtype) * widen(c)
        return product.astype(a.dtype, copy=False)

    def compute(
        self, at: StageBuilder, a: Operand, b: Operand, c: Operand | None = None
    ) -> Operand:
        (result,) = self.infer(a.type, b.type, None if c is None else c.type)
        wide = accumulator(a.dtype)
        depth = a.shape[0 if self.trans_a else 1]

        def body(o: Point, r: Point) -> Element:
            left = a[_turned((o[0], r[0]), self.trans_a)]
            return left.cast(wide) * b[_turned((r[0], o[1]), self.trans_b)].cast(wide)

        product = combined(at, result.shape, (depth,), "sum", body)

        def epilogue(o: Point) -> Element:
            value = product[o] if self.alpha == 1.0 else product[o] * self.alpha
            if c is not None:
                addend = c.broadcast(o).cast(wide)
                value = value + (addend if self.beta == 1.0 else addend * self.beta)
            return value.cast(a.dtype)

        plain = self.alpha == 1.0 and c is None and wide == a.dtype
        return product if plain else at.stage(result.shape, epilogue)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        a, b, *c = inputs
        left = build.emit(Transpose((1, 0)), a) if self.trans_a else a
        right = build.emit(Transpose((1, 0)), b) if self.trans_b else b
        y = Value(build, build.emit(MatMul(), left, right))
        y = y if self.alpha == 1.0 else y * self.alpha
        for name in filter(None, c):
            addend = Value(build, name)
            y = y + (addend if self.beta == 1.0 else addend * self.beta)
        return (y.name,)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        a, b, *c = inputs
        (dy,) = dys
        turned_a, turned_b = self.trans_a, self.trans_b

        def product(x: str, y: str, trans_x: bool, trans_y: bool) -> str:
            return build.emit(Gemm(self.alpha, 0.0, trans_x, trans_y), x, y)

        da = product(b, dy, turned_b, True) if turned_a else product(dy, b, False, not turned_b)
        db = product(dy, a, True, turned_a) if turned_b else product(a, dy, not turned_a, False)
        return (da, db, *(self._addend_gradient(build, dy, name) if name else None for name in c))

    def _addend_gradient(self, build: Builder, dy: str, c: str) -> str:
        scaled = Value(build, dy) * self.beta if self.beta != 1.0 else Value(build, dy)
        return unbroadcast(build, scaled.name, build.type_of(c).shape)

    def quantize(self) -> QuantizedForm:
        bias = 2 if self.alpha == self.beta == 1.0 else None
        return QuantizedForm(weights=1, axis=0 if self.trans_b else 1, channel=1, bias=bias)


def _turned(pair: Sequence[Index], transposed: bool) -> tuple[Index, Index]:
    first, second = pair
    return (second, first) if transposed else (first, second)


@dataclass(frozen=True)
class Einsum(Op):
    """Sum of products by Einstein's notation with an explicit result: ``"bij,bjk->bik"``.

    Labels are single letters; ``...`` is resolved by the frontend, which also writes the arrow.
    A label twice in one operand takes its diagonal.
    """

    narrowing = PRODUCTS
    costly: ClassVar[bool] = True
    equation: str
    samples = (
        sample(tensor(3, 4), tensor(4, 5), equation="ij,jk->ik"),
        sample(tensor(2, "q", 3, 4), tensor(2, "k", 3, 4), equation="bqhd,bkhd->bhqk"),
        sample(tensor(4, 4), equation="ii->"),
        sample(tensor(2, 4, 4), equation="bii->bi"),
        sample(tensor(2, 3), equation="ab->ba"),
        sample(tensor(3), tensor(4), equation="i,j->ij"),
        sample(tensor(2, 3), tensor(3, 4), tensor(4), equation="ab,bc,c->a"),
        sample(tensor(1, 3), tensor(1, 3), equation="ab,ab->b"),
    )

    @property
    def terms(self) -> tuple[tuple[str, ...], str]:
        """Labels of each operand and of the result."""
        left, _, right = self.equation.replace(" ", "").partition("->")
        return tuple(left.split(",")), right

    def infer(self, *operands: TensorType) -> tuple[TensorType]:
        terms, result = self.terms
        dtype = same_dtype(*operands)
        require_numeric(dtype, "Einsum")
        require(
            "->" in self.equation and len(terms) == len(operands),
            f"equation {self.equation!r} has {len(terms)} terms for {len(operands)} operands",
            "write one comma-separated term per operand, an arrow and the result's labels",
        )
        extents = self._extents(tuple(t.shape for t in operands))
        self.require_meetings(*operands)
        missing = [label for label in result if label not in extents]
        require(not missing, f"labels {missing} of the result of {self.equation!r} have no operand")
        require(len(set(result)) == len(result), f"{self.equation!r} repeats a label of its result")
        return (TensorType(tuple(extents[label] for label in result), dtype),)

    def _extents(self, shapes: tuple[tuple[Index, ...], ...]) -> dict[str, Index]:
        extents: dict[str, Index] = {}
        for term, shape in zip(self.terms[0], shapes, strict=True):
            require(
                len(term) == len(shape) and all(label.isalpha() for label in term),
                f"term {term!r} of {self.equation!r} does not fit an operand of rank {len(shape)}",
            )
            for label, extent in zip(term, shape, strict=True):
                known = extents.setdefault(label, extent)
                extents[label] = known if isinstance(known, int) else extent
        return extents

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        shapes = tuple(t.shape for t in operands if t is not None)
        extents = self._extents(shapes)
        for term, shape in zip(self.terms[0], shapes, strict=True):
            for label, extent in zip(term, shape, strict=True):
                yield extents[label], extent, f"extents of {label!r} in {self.equation!r} differ"

    def reference(self, *operands: Array) -> Array:
        wide = np.einsum(self.equation, *map(widen, operands), optimize=len(operands) > 1)
        return np.asarray(wide).astype(operands[0].dtype, copy=False)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        return tuple(self._adjoint(build, dys[0], inputs, i) for i in range(len(inputs)))

    def _adjoint(self, build: Builder, dy: str, operands: Values, which: int) -> str:
        """Gradient of operand ``which``: the same contraction with it and the result exchanged.

        A label it repeats scatters to the diagonal through an identity matrix; one that is
        nowhere else was summed alone, so its gradient is spread evenly.
        """
        terms, result = self.terms
        shape = build.type_of(operands[which]).shape
        factors = [(result, dy)]
        factors += [
            (t, x) for i, (t, x) in enumerate(zip(terms, operands, strict=True)) if i != which
        ]
        fresh = iter(c for c in ascii_letters if c not in self.equation)
        target = ""
        for label, extent in zip(terms[which], shape, strict=True):
            if label not in target:
                target += label
                continue
            target += next(fresh)
            (size,) = numbers((extent,), "the extent of a diagonal that is differentiated")
            eye = np.eye(size, dtype=build.type_of(dy).dtype.numpy)
            factors.append((label + target[-1], build.constant(eye)))
        known = {label for term, _ in factors for label in term}
        kept = "".join(label for label in target if label in known)
        equation = f"{','.join(term for term, _ in factors)}->{kept}"
        dx = build.emit(Einsum(equation), *(x for _, x in factors))
        lined = tuple(e if label in known else 1 for e, label in zip(shape, target, strict=True))
        dx = reshaped(build, dx, lined)
        return dx if lined == shape else build.emit(Expand(shape), dx)

    def compute(self, at: StageBuilder, *operands: Operand) -> Operand:
        extents = self._extents(tuple(x.shape for x in operands))
        terms, labels = self.terms
        summed = [label for label in extents if label not in labels]
        wide = accumulator(operands[0].dtype)

        def body(o: Point, r: Point) -> Element:
            index: Mapping[str, Index] = dict(zip([*labels, *summed], [*o, *r], strict=True))
            reads = [
                x[tuple(index[label] for label in term)].cast(wide)
                for x, term in zip(operands, terms, strict=True)
            ]
            value = reads[0]
            for read in reads[1:]:
                value = value * read
            return value

        shape = tuple(extents[label] for label in labels)
        total = combined(at, shape, [extents[label] for label in summed], "sum", body)
        return rounded(at, total, operands[0].dtype)


OPS: tuple[type[Op], ...] = (MatMul, Gemm, Einsum)
