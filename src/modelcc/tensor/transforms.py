"""Derivatives beyond the gradient of one float: vjp, jvp, Jacobians, Hessians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ops.broadcast import Reshape
from modelcc.ops.generate import Full
from modelcc.tensor.bodies import Outcome, outcome
from modelcc.tensor.gradients import grad, recorded
from modelcc.tensor.lazy import FREE, callers_line
from modelcc.tensor.loops import map as mapped_over
from modelcc.tensor.reverse import CLOSED, alone, gradients, is_recorded
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten, like


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The result of ``function(*primals)``, and a function from its cotangent to those of primals.

    A cotangent is a tree like the result, those of primals are a tuple; None stands for leaves that
    are not floats.  With ``has_aux`` the function returns a pair, whose second part comes last.
    Intermediate values are kept as long as the second result, which may be called repeatedly.
    """
    run = _run(function, primals, has_aux)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        dys = _cotangents(run.result, cotangent)
        return like(primals, iter(_detached(run.gradients(dys))))

    result = run.result.rebuilt(_detached(run.result.results))
    if not has_aux:
        return result, pullback
    return result, pullback, run.aux.rebuilt(_detached(run.aux.results))


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """The result of ``function(*primals)``, and its derivative in the direction of ``tangents``.

    The vjp is linear in its cotangent, so the gradient of that by the cotangent is the forward
    derivative (Townsend, "A new trick for calculating Jacobian vector products", 2017).
    """
    run = _run(function, tuple(primals), False)
    floats = [r for r in run.result.results if r.dtype.is_float]
    weights = [recorded(_zeros(r), CLOSED) for r in floats]
    places = iter(weights)
    dys = [next(places) if r.dtype.is_float else None for r in run.result.results]
    backwards = run.gradients(dys, zeros=False)
    moved = _cotangents(outcome(tuple(primals)), tuple(tangents))
    pairs = [
        (b, t) for b, t in zip(backwards, moved, strict=True) if b is not None and t is not None
    ]
    found: Sequence[Tensor | None] = (None,) * len(weights)
    if pairs:
        found = gradients([b for b, _ in pairs], [t for _, t in pairs], weights)
    slopes = iter(found)
    tangent = [
        _or_zeros(next(slopes), r, True) if r.dtype.is_float else None for r in run.result.results
    ]
    return tuple(run.result.rebuilt(_detached(x)) for x in (run.result.results, tangent))


def jacobian(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function of the derivatives of all results by all elements of argument ``argnum``.

    For each leaf of the result there is a tree like the argument, of tensors whose shape is that
    of the result's leaf followed by that of the argument's.  Rows are computed in a loop, in
    reverse mode; extents must be numbers.
    """

    def evaluated(*args: Any, **kwargs: Any) -> Any:
        def of_one(x: Any) -> Any:
            return function(*args[:argnum], x, *args[argnum + 1 :], **kwargs)

        run = _run(of_one, (args[argnum],), False)
        rows = [_rows(run, number) for number in range(len(run.result.results))]
        return run.result.rebuilt([like(args[argnum], iter(_detached(row))) for row in rows])

    return evaluated


def hessian(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function of all second derivatives of a float by argument ``argnum``: for each leaf's
    gradient a tree like the argument."""
    return jacobian(grad(function, argnum), argnum)


@dataclass(frozen=True)
class _ForwardRun:
    """What a function returned for the aliases ``own`` of its arguments' leaves."""

    result: Outcome
    aux: Outcome
    own: Sequence[Tensor]

    def gradients(self, dys: Sequence[Tensor | None], zeros: bool = True) -> list[Tensor | None]:
        """Gradients of the arguments; None for those that are not floats, without ``zeros`` also
        for those on which the result does not depend."""
        if any(x.phase == FREE for x in self.own):
            raise ModelError(
                "a function of vjp was made while a gradient was taken, and called after that",
                callers_line(),
                "call it within the function whose gradient is taken",
            )
        pairs = [(r, dy) for r, dy in zip(self.result.results, dys, strict=True) if dy is not None]
        floats = [x for x in self.own if x.dtype.is_float]
        found = iter(
            gradients([r for r, _ in pairs], [dy for _, dy in pairs], floats)
            if pairs
            else [None] * len(floats)
        )
        return [_or_zeros(next(found), x, zeros) if x.dtype.is_float else None for x in self.own]


def _detached(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """``tensors`` without their history, unless others record it."""
    if is_recorded([t for t in tensors if t is not None]):
        return list(tensors)
    return [None if t is None else alone(t) for t in tensors]


def _rows(run: _ForwardRun, number: int) -> list[Tensor | None]:
    """Derivatives of all elements of one result, in reverse mode one by one in a loop."""
    leaf = run.result.results[number]
    if not leaf.dtype.is_float or not leaf.type.is_static:
        raise ModelError(f"a Jacobian is of floats of known shapes, not of {leaf.type}",
                         callers_line())  # fmt: skip
    shape = leaf.type.static_shape()
    size = prod(shape)
    units = Tensor(np.eye(size, dtype=leaf.dtype.numpy).reshape(size, *shape))

    def row(dy: Tensor) -> list[Tensor]:
        dys = [dy if i == number else None for i in range(len(run.result.results))]
        return [found for found in run.gradients(dys) if found is not None]

    stacks = iter(mapped_over(row, units))
    return [_reshaped(next(stacks), (*shape, *x.shape)) if x.dtype.is_float else None
            for x in run.own]  # fmt: skip


def _reshaped(x: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return x.result(Reshape(shape), x)


def _or_zeros(found: Tensor | None, x: Tensor, zeros: bool) -> Tensor | None:
    return _zeros(x) if found is None and zeros else found


def _zeros(x: Tensor) -> Tensor:
    return x.result(Full(x.shape, 0, x.dtype))


def _run(function: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool) -> _ForwardRun:
    own = [recorded(leaf) for leaf in flatten(primals)[0]]
    returned = function(*like(primals, iter(own)))
    for node in own:
        node.op = CLOSED
    result, aux = returned if has_aux else (returned, ())
    return _ForwardRun(outcome(result), outcome(aux), own)


def _cotangents(result: Outcome, given: Any) -> list[Tensor | None]:
    """``given`` as tensors of the types of ``result``; None for values that are not floats."""
    leaves, form = flatten(given)
    if len(leaves) == len(result.results) and form == result.form:
        pairs = list(zip(leaves, result.results, strict=True))
        made = [_alike(leaf, r) if r.dtype.is_float else None for leaf, r in pairs]
        if all(m is None or m.type == r.type for m, (_, r) in zip(made, pairs, strict=True)):
            return made
    shown = ", ".join(str(getattr(leaf, "type", type(leaf).__name__)) for leaf in leaves)
    raise ModelError(
        f"a cotangent or tangent must be a tree like what it belongs to ({result}), not ({shown})",
        callers_line(),
    )


def _alike(leaf: Any, like: Tensor) -> Tensor:
    """A tensor; numbers and arrays are converted to the required type."""
    return leaf if isinstance(leaf, Tensor) else Tensor(leaf, like.dtype)
