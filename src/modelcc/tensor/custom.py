"""Custom gradients of functions: none, a custom rule, or by recomputation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import update_wrapper
from typing import Any, cast

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ops.differentiation import Checkpoint, CustomGradient, StopGradient
from modelcc.tensor.bodies import Outcome, body_of, outcome, placeholders, tensor_of, unique_op
from modelcc.tensor.lazy import FREE, apply, callers_line
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten, is_leaf, like, mapped, parts_of

STOP = StopGradient()


def stop_gradient(tree: Any) -> Any:
    """A tree of the same values, which count as constants for gradients."""
    return mapped(_stopped, tree)


def _stopped(leaf: Any) -> Tensor:
    x = tensor_of(leaf)
    return x if x.phase == FREE else x.result(STOP, x)


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` without saved intermediates for gradients: these recompute them.

    It is traced, may use tensors from around it, and takes and returns trees of tensors.
    """

    def evaluated(*args: Any, **kwargs: Any) -> Any:
        leaves = [tensor_of(leaf) for leaf in flatten((args, kwargs))[0]]
        own = placeholders("operand", [leaf.type for leaf in leaves])
        inside, named = like((args, kwargs), iter(own))
        found = outcome(function(*inside, **named))
        body = body_of(found.results, own, moved_out=False)
        build = GraphBuilder("checkpoint")
        names = {id(x): build.input(f"operand{i}", x.type) for i, x in enumerate(own)}
        op = unique_op(Checkpoint(body.graph(build, names, body.captured)))
        return found.rebuilt(apply(Tensor, op, [*leaves, *body.captured]))

    return update_wrapper(evaluated, function)


def custom_gradient(
    forward: Callable[..., tuple[Any, Any]], backward: Callable[[Any, Any], Sequence[Any]]
) -> Callable[..., Any]:
    """A function with a given gradient instead of a derived one.

    ``forward(*args)`` returns the result and values to keep; ``backward(kept, dy)`` returns a
    gradient for each of ``args``, a tree like it, or None.  ``dy`` is a tree like the result, with
    None for leaves that are not floats.  Both must take all tensors as arguments: captured ones get
    no gradients.

    >>> clipped = custom_gradient(lambda x: (x, x), lambda x, dy: (dy * (abs(x) < 1),))
    """

    def evaluated(*args: Any) -> Any:
        result, kept = _two(forward(*args))
        leaves = [tensor_of(leaf) for leaf in flatten(args)[0]]
        if all(leaf.phase == FREE for leaf in leaves):
            return result
        return _with_rule(args, leaves, outcome(result), outcome(kept), backward)

    return update_wrapper(evaluated, forward)


def _with_rule(
    args: tuple[Any, ...],
    leaves: Sequence[Tensor],
    result: Outcome,
    kept: Outcome,
    backward: Callable[[Any, Any], Sequence[Any]],
) -> Any:
    saved = placeholders("kept", kept.types())
    floats = [r.type for r in result.results if r.dtype.is_float]
    dys = placeholders("dy", floats)
    places = iter(dys)
    cotangent = result.rebuilt([next(places) if r.dtype.is_float else None for r in result.results])
    wanted, found = _by_leaf(args, leaves, backward(kept.rebuilt(saved), cotangent))
    body = body_of(found, [*saved, *dys], moved_out=True)
    build = GraphBuilder("gradient")
    own = [*saved, *body.captured, *dys]
    names = {id(x): build.input(f"x{i}", x.type) for i, x in enumerate(own)}
    rule = CustomGradient(
        body.graph(build, names, ()), len(result.results), len(leaves), tuple(wanted)
    )
    operands = [*result.results, *leaves, *kept.results, *body.captured]
    return result.rebuilt(apply(Tensor, unique_op(rule), operands))


def _by_leaf(
    args: tuple[Any, ...], leaves: Sequence[Tensor], given: Any
) -> tuple[list[int], list[Tensor]]:
    """Numbers of the leaves that have gradients, and these; rejects gradients that do not fit."""
    gradients = cast("Sequence[Any]", given)
    if not isinstance(given, tuple | list) or len(gradients) != len(args):
        raise ModelError(
            f"the gradient of a function of {len(args)} arguments must be a tuple of as many",
            callers_line(),
            "return None for an argument that has none",
        )
    wanted: list[int] = []
    found: list[Tensor] = []
    parts = [part for pair in zip(args, gradients, strict=True) for part in _matched(*pair)]
    for number, (leaf, part) in enumerate(zip(leaves, parts, strict=True)):
        if part is None:
            continue
        tensor = tensor_of(part)
        if tensor.type != leaf.type:
            raise ModelError(f"the gradient of {leaf.type} is {tensor.type}", callers_line(),
                             "cast it, or sum over what was broadcast")  # fmt: skip
        wanted.append(number)
        found.append(tensor)
    return wanted, found


def _matched(arg: Any, gradient: Any) -> Iterator[Any]:
    """For each leaf of ``arg`` the corresponding one of ``gradient``, or None."""
    if is_leaf(arg):
        yield gradient
        return
    mine = parts_of(arg) or {}
    given = None if gradient is None else parts_of(gradient)
    if given is not None and given.keys() != mine.keys():
        raise ModelError(f"the gradient of {list(mine)} has parts {list(given)}", callers_line())
    for name, part in mine.items():
        yield from _matched(part, None if given is None else given[name])


def _two(returned: Any) -> tuple[Any, Any]:
    if isinstance(returned, tuple):
        pair = cast("tuple[Any, ...]", returned)
        if len(pair) == 2:
            return pair[0], pair[1]
    raise ModelError(
        "the forward function of custom_gradient must return the result and what is to be kept",
        callers_line(),
        "return (result, None) if nothing is",
    )
