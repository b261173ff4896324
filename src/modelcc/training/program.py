"""Training steps and evaluations as graphs of the compiler.

Tensors that a step updates are states of the compiled model: parameters, optimiser state, buffers.
Tensors that it only reads are inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range
from modelcc.ir.structure import Interface, ModelState
from modelcc.ir.types import TensorType
from modelcc.ops.generate import Full
from modelcc.optim.clipping import Clipping
from modelcc.optim.optimizer import Optimizer, State
from modelcc.tensor.graphs import graph_of, operands_first
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.loops import scan
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import like, mapped, paths
from modelcc.training.finite import UPDATE
from modelcc.training.objective import Batch, BatchOutcome, Loss, differentiated, outcome
from modelcc.training.parts import ModelParts, in_use

MODEL, OPTIMIZER, NEXT = "model", "optimizer", "next"
"""Prefixes of names."""

Bounds = tuple[tuple[str, Range], ...]


Carry = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Sums of gradients, and buffers."""


@dataclass(frozen=True)
class Recipe:
    """Ingredients of a step: a model's ``parts``, and the optimiser's ``state`` before it."""

    parts: ModelParts
    loss: Loss
    optimizer: Optimizer
    state: State
    clip: Clipping | None = None
    accumulate: int = 1


@dataclass(frozen=True)
class StepProgram:
    """A graph, names of its reported values, of the ``states`` that it updates, and of tensors of
    the model and the optimiser that it only reads."""

    graph: Graph
    reported: tuple[str, ...]
    states: frozenset[str]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class BatchTypes:
    """A tree of the form of a batch, types of its leaves, and bounds of named dimensions."""

    tree: tuple[tuple[Any, ...], dict[str, Any]]
    types: tuple[TensorType, ...]
    bounds: Bounds = ()

    def names(self) -> list[str]:
        """Names of its leaves."""
        args, kwargs = self.tree
        return [f"batch.{path}" for path, _ in (*paths(args), *paths(kwargs))]

    def inputs(self) -> dict[str, Tensor]:
        """Inputs without contents by name."""
        pairs = zip(self.names(), self.types, strict=True)
        return {name: Tensor.placeholder(name, type, self.bounds) for name, type in pairs}

    def batch(self, inputs: Mapping[str, Tensor]) -> Batch:
        """The arguments of a loss."""
        args, kwargs = like(self.tree, iter(inputs.values()))
        return Batch(args, kwargs)


def hollow(state: State) -> State:
    """A state without contents."""
    blank = [Tensor.placeholder(path, x.type) for path, x in paths(state)]
    return like(state, iter(blank))


def named_tensors(parts: ModelParts, state: State) -> dict[str, Tensor]:
    """All tensors that training updates or depends on, by name."""
    own = {f"{MODEL}.{path}": tensor for path, tensor in parts.tensors.items()}
    return own | dict(paths(state, OPTIMIZER))


def step_program(recipe: Recipe, types: BatchTypes) -> StepProgram:
    """Forward, backward and update as one graph."""
    parts, given = recipe.parts, types.inputs()
    before = _placeholders(named_tensors(parts, recipe.state))
    own = {path: before[f"{MODEL}.{path}"] for path in parts.tensors}
    batch = types.batch(given)
    found, grads = accumulated(recipe.loss, parts, own, batch, recipe.accumulate)
    if not grads:
        raise ModelError("the loss depends on no parameter", (), "compute it from the model")
    state = like(recipe.state, iter(before[name] for name, _ in paths(recipe.state, OPTIMIZER)))
    params = {path: own[path] for path in parts.params}
    params, state = recipe.optimizer.update(
        grads if recipe.clip is None else recipe.clip(grads), state, params
    )
    _locate((params, state), {id(x) for x in (*grads.values(), *before.values())})
    after = {f"{MODEL}.{path}": x for path, x in (params | found.buffers).items()}
    after |= paths(state, OPTIMIZER)
    _require_same_types(before, after)
    changed = {name: x for name, x in after.items() if x is not before[name]}
    return _program("train_step", before, given, found.reported, changed)


def _locate(updated: Any, given: set[int]) -> None:
    """Attributes nodes between ``given`` and ``updated`` to the optimiser, unless its rule is in
    the user's program."""
    here = callers_line()
    leaves = [x for _, x in paths(updated)]
    for node in operands_first(leaves, lambda node: id(node) not in given):
        if id(node) not in given and node.source == here:
            node.source = UPDATE


def evaluation_program(parts: ModelParts, loss: Loss, types: BatchTypes) -> StepProgram:
    """Loss and metrics of the model in inference mode."""
    given = types.inputs()
    before = _placeholders({f"{MODEL}.{path}": x for path, x in parts.tensors.items()})
    model = in_use(parts.rebuilt({path: before[f"{MODEL}.{path}"] for path in parts.tensors}))
    found = outcome(loss, parts, model, types.batch(given))
    return _program("evaluation", before, given, found.reported, {})


def _placeholders(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: Tensor.placeholder(name, x.type) for name, x in tensors.items()}


def _program(
    name: str,
    before: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    reported: Mapping[str, Tensor],
    changed: Mapping[str, Tensor],
) -> StepProgram:
    """The graph of ``reported`` and of ``changed`` states."""
    inputs = {**given, **before}
    outputs = {**reported, **{f"{NEXT}.{state}": x for state, x in changed.items()}}
    graph = graph_of(
        name, list(inputs.values()), list(inputs), list(outputs.values()), list(outputs)
    )
    read = {operand for node in graph.nodes for operand in node.inputs}
    reads = tuple(n for n in before if n in read and n not in changed)
    kept = tuple(n for n in graph.inputs if n not in before or n in changed or n in reads)
    unread = set(graph.inputs).difference(kept)
    types = {n: t for n, t in graph.types.items() if n not in unread}
    graph = replace(graph, inputs=kept, types=types)
    return StepProgram(
        _with_states(graph, reported, changed), tuple(reported), frozenset(changed), reads
    )


def _with_states(graph: Graph, reported: Sequence[str] | Any, changed: Any) -> Graph:
    if not changed:
        return graph
    states = {name: ModelState(name, f"{NEXT}.{name}") for name in changed}
    seen = {name: name for name in graph.inputs if name not in changed}
    return replace(graph, interface=Interface(seen, {n: n for n in reported}, states=states))


def _require_same_types(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    for name, tensor in after.items():
        if tensor.type != before[name].type:
            raise ModelError(
                f"a step makes {tensor.type} of {name}, which is {before[name].type}", (),
                "keep shapes and element types of parameters and buffers",
            )  # fmt: skip


def accumulated(
    loss: Loss, parts: ModelParts, tensors: Mapping[str, Tensor], batch: Batch, count: int
) -> tuple[BatchOutcome, dict[str, Tensor]]:
    """As :func:`differentiated`, for ``count`` parts along axis 0 in a loop: means of all but
    buffers, which are passed from part to part."""
    if count == 1:
        return differentiated(loss, parts, tensors, batch)
    reached: set[str] = set()

    def body(carry: Carry, part: tuple[Any, Any]) -> tuple[Carry, dict[str, Tensor]]:
        sums, buffers = carry
        found, grads = differentiated(loss, parts, {**tensors, **buffers}, Batch(*part))
        reached.update(grads)
        sums = {path: sums[path] + grads[path] if path in grads else sums[path] for path in sums}
        return (sums, found.buffers), found.reported

    zeros = {path: _zeros(tensors[path]) for path in parts.params}
    before = {path: tensors[path] for path in parts.buffers}
    slices = mapped(partial(_cut, count=count), (tuple(batch.args), dict(batch.kwargs)))
    (sums, buffers), reported = scan(body, (zeros, before), slices)
    means = {name: values.mean(0) for name, values in reported.items()}
    grads = {path: sums[path] * (1.0 / count) for path in sums if path in reached}
    return BatchOutcome(means.pop("loss"), means, buffers), grads


def _zeros(like: Tensor) -> Tensor:
    return like.result(Full(like.shape, 0, like.dtype))


def _cut(x: Tensor, count: int) -> Tensor:
    """``x`` as ``[count, n / count, …]``."""
    extent = x.shape[0] if x.ndim else None
    if not isinstance(extent, int) or extent % count:
        what = f"a batch of {x.type} cannot be cut into {count} equal parts"
        raise ModelError(what, ("accumulate",), f"give multiples of {count} on axis 0")
    return x.reshape(count, extent // count, *x.shape[1:])
