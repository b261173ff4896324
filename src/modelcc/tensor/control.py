"""Branches and loops whose conditions are tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range
from modelcc.ir.types import BOOL
from modelcc.ops.control import If, Loop
from modelcc.tensor.bodies import (
    Outcome,
    TracedBody,
    body_of,
    counter_for,
    is_traced,
    outcome,
    placeholders,
    same_types,
    tensor_of,
    unique_op,
)
from modelcc.tensor.lazy import Lazy, apply, callers_line
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten, like


def cond(pred: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """``then(*operands)`` if ``pred`` holds, else ``otherwise(*operands)``: trees of one form.

    ``pred`` is one bool.  If it has a value, only that function is called; if it is traced both
    are, and one of them is computed.  Functions may use tensors from around them.
    :class:`ModelError` if the results differ in form, shapes or types.
    """
    condition = tensor_of(pred)
    _require_bool(condition, "the predicate of cond")
    if not is_traced(condition):
        return then(*operands) if bool(condition) else otherwise(*operands)
    leaves = [tensor_of(leaf) for leaf in flatten(operands)[0]]
    own = placeholders("operand", [leaf.type for leaf in leaves])
    # Nothing here may hold the branches' values: reference counts tell these from captured ones.
    outcomes = [outcome(f(*like(operands, iter(own)))) for f in (then, otherwise)]
    first, second = outcomes
    same_types("the branches of cond differ", first, second, ("then", "otherwise"))
    bodies = [body_of(found.results, own, moved_out=False) for found in outcomes]
    captured = {id(node): node for body in bodies for node in body.captured}
    sides = [_branch(body, own, list(captured.values())) for body in bodies]
    made = apply(Tensor, unique_op(If(*sides)), [condition, *leaves, *captured.values()])
    return first.rebuilt(made)


def _branch(body: TracedBody, own: Sequence[Tensor], captured: Sequence[Lazy]) -> Graph:
    build = GraphBuilder("branch")
    names = {id(x): build.input(f"operand{i}", x.type) for i, x in enumerate(own)}
    return body.graph(build, names, captured)


def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, limit: int | None = None
) -> Any:
    """The last state of ``state = body(state)`` while ``cond(state)`` holds, from ``init`` on.

    A state is a tree of fixed form, shapes and types.  There are no more than ``limit`` iterations;
    a traced loop has gradients only with a limit, for which it keeps that many states.
    """
    state, count = init, 0
    while limit is None or count < limit:
        more = tensor_of(cond(state))
        _require_bool(more, "the condition of while_loop")
        if is_traced(more) or is_traced(state):
            left = None if limit is None else limit - count
            return _traced_loop(cond, body, outcome(state), left)
        if not bool(more):
            return state
        state, count = _checked_step(body, state), count + 1
    return state


def _checked_step(body: Callable[[Any], Any], state: Any) -> Any:
    """The next state, which must have the types of the previous one."""
    before, after = outcome(state), outcome(body(state))
    same_types("the state of while_loop changes", before, after, ("the state", "the next one"))
    return after.rebuilt(after.results)


def _traced_loop(
    cond: Callable[[Any], Any], step: Callable[[Any], Any], first: Outcome, limit: int | None
) -> Any:
    more = tensor_of(cond(first.rebuilt(first.results)))
    own = placeholders("state", first.types())
    after = outcome(step(first.rebuilt(own)))
    same_types("the state of while_loop changes", first, after, ("the state", "the next one"))
    again = tensor_of(cond(after.rebuilt(after.results)))
    _require_bool(again, "the condition of while_loop")
    body = body_of([again, *after.results], own, moved_out=True)
    counter = counter_for(body)
    build = GraphBuilder("iteration", {counter: Range(0, None)})
    build.input("more", more.type)
    names = {id(x): build.input(f"state{i}", x.type) for i, x in enumerate(own)}
    graph = body.graph(build, names, body.captured)
    loop = Loop(graph, counter, limit, 1 + len(own), conditional=True)
    made = apply(Tensor, unique_op(loop), [more, *first.results, *body.captured])
    return after.rebuilt(made[1:])


def _require_bool(condition: Tensor, what: str) -> None:
    if condition.shape or condition.dtype != BOOL:
        raise ModelError(
            f"{what} must be one bool, and it is {condition.type}",
            callers_line(),
            "compare, or take all() or any() of it",
        )
