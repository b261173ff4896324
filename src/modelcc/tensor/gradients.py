"""Gradients of functions of tensors, as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ops.generate import Full
from modelcc.tensor.lazy import RECORDED, Alias, callers_line
from modelcc.tensor.reverse import gradients, release
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten, like, paths

OPEN = Alias()


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function of the value of ``function`` and its gradient by the arguments ``argnums``.

    ``function`` returns one float, with ``has_aux`` a pair of it and anything else.  The gradient
    is a tree like the argument, or a tuple of such if ``argnums`` is a sequence; it is 0 where the
    value does not depend on a leaf, and None for leaves that are not floats.  ``function`` is
    ordinary Python: values may be inspected, and gradients of gradients taken.
    """
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def evaluated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        given = list(args)
        wanted: list[list[Tensor]] = []
        for place in places:
            leaves = [recorded(leaf) for leaf in flatten(args[place])[0]]
            given[place] = like(args[place], iter(leaves))
            wanted.append(leaves)
        result = function(*given, **kwargs)
        loss = result[0] if has_aux else result
        own = [leaf for leaves in wanted for leaf in leaves]
        slopes = _gradients(loss, own)
        # A layer may have changed its buffers, which are parts of its arguments.
        _forget([result, *(given[place] for place in places)], slopes, own)
        found = iter(slopes)
        trees = [like(args[place], found) for place in places]
        return result, trees[0] if isinstance(argnums, int) else tuple(trees)

    return evaluated


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that only returns the gradient of :func:`value_and_grad`; with ``has_aux`` a
    pair."""
    both = value_and_grad(function, argnums, has_aux)

    def evaluated(*args: Any, **kwargs: Any) -> Any:
        result, found = both(*args, **kwargs)
        return (found, result[1]) if has_aux else found

    return evaluated


def recorded(leaf: Any, alias: Alias = OPEN) -> Tensor:
    """``leaf`` as a tensor for taking gradients: operations on it are recorded."""
    tensor = leaf if isinstance(leaf, Tensor) else Tensor(leaf)
    phase = max(RECORDED, tensor.phase)
    return Tensor.made(alias, (tensor,), tensor.type, phase, tensor.held)


def _forget(trees: Sequence[Any], found: Sequence[Tensor | None], own: Sequence[Tensor]) -> None:
    leaves = [leaf for tree in trees for _, leaf in paths(tree)]
    kept = [leaf for leaf in (*leaves, *found) if isinstance(leaf, Tensor)]
    release(kept, own)


def _gradients(loss: Any, wanted: Sequence[Tensor]) -> list[Tensor | None]:
    if not isinstance(loss, Tensor) or loss.shape or not loss.dtype.is_float:
        given = loss.type if isinstance(loss, Tensor) else type(loss).__name__
        hint = "take the mean or the sum of it; with has_aux=True return a pair"
        raise ModelError(f"a gradient is of one float, and the function returned {given}",
                         callers_line(), hint)  # fmt: skip
    one = Tensor(1.0, loss.dtype)
    floats = [x for x in wanted if x.dtype.is_float]
    found = dict(zip(map(id, floats), gradients([loss], [one], floats), strict=True))
    return [_or_zeros(found[id(x)], x) if x.dtype.is_float else None for x in wanted]


def _or_zeros(found: Tensor | None, x: Tensor) -> Tensor:
    return x.result(Full(x.shape, 0, x.dtype)) if found is None else found
