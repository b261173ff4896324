"""Computing what is pending: one compiled program for each structure of nodes and types.

Lazy evaluation by graphs whose compiled forms are kept: Suhan et al., "LazyTensor: combining eager
execution with domain-specific compilers" (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import getrefcount
from typing import Any, cast

from modelcc.api import compile
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import Array, TensorType
from modelcc.model import Model
from modelcc.ops.arithmetic import Identity
from modelcc.tensor.lazy import (
    FREE,
    Alias,
    Lazy,
    Placeholder,
    Projection,
    TracingError,
    array_type,
    callers_line,
)

KEPT = 1024
"""Structures whose programs are kept."""

ABSENT, END = -1, -2
"""The number of an operand that is not there, and what ends the numbers of a step."""

NEVER = -(1 << 62)
"""Uses of a node that is no output: it has an array, or several results."""

OWN = 2
"""References to a node in the list of what is pending, and as the argument that counts them."""


@dataclass(frozen=True)
class Structure:
    """Nodes by number: a step is a type where there is an array, else an op and numbers.

    ``outputs`` are the numbers of what is to be computed.
    """

    steps: tuple[Any, ...]
    outputs: tuple[int, ...]


class Key:
    """A structure by the identity of its ops and types, which is quick to find again.

    It keeps them alive, so that no others have their identities.
    """

    __slots__ = ("identities", "structure")

    def __init__(self, identities: tuple[int, ...], structure: Structure) -> None:
        """``identities`` are all of the structure in one row."""
        self.identities = identities
        self.structure = structure

    def __hash__(self) -> int:
        return hash(self.identities)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.identities == other.identities


def evaluate(wanted: Sequence[Lazy]) -> None:
    """Have ``wanted``, and what else of their pending operands somebody holds, computed.

    :class:`TracingError` if one of them hangs on a value that has no contents.
    """
    waiting = [node for node in wanted if node.held is None]
    if not waiting:
        return
    found = _Pending()
    found.visit(waiting)
    asked = {id(node) for node in waiting}
    order = found.order
    outputs = tuple([
        number
        for number, used in enumerate(found.uses)
        # What is computed and not kept would be computed again when it is asked for: counts of
        # references decide what that may cost, never what comes out.
        if used >= 0
        and (getrefcount(order[number]) > used + OWN or id(order[number]) in asked)
    ])  # fmt: skip
    found.identities.extend(outputs)
    key = Key(tuple(found.identities), Structure(tuple(found.steps), outputs))
    for number, array in zip(outputs, results_of(_kept(key), found.leaves), strict=True):
        _settle(order[number], array)


def results_of(model: Model, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """All results of a compiled model."""
    results: Any = model(*inputs)
    return cast("tuple[Array, ...]", results if isinstance(results, tuple) else (results,))


class _Pending:
    """What is pending, operands first: nodes, how often each is an operand, and arrays.

    ``steps`` are those of a structure and ``identities`` theirs in one row.
    """

    def __init__(self) -> None:
        self.order: list[Lazy] = []
        self.uses: list[int] = []
        self.steps: list[Any] = []
        self.identities: list[int] = []
        self.leaves: list[Array] = []

    def visit(self, wanted: Sequence[Lazy]) -> None:
        """Add ``wanted`` and what they are made of, down to what is computed."""
        numbers: dict[int, int] = {}
        order, uses, steps, identities = self.order, self.uses, self.steps, self.identities
        stack = list(wanted)
        while stack:
            node = stack[-1]
            mine = id(node)
            if mine in numbers:
                stack.pop()
                continue
            if node.held is not None:
                self._add_leaf(node)
            else:
                depth = len(stack)
                for x in node.operands:
                    if id(x) not in numbers and x is not None:
                        stack.append(x)
                if len(stack) > depth:
                    continue
                places = [ABSENT if x is None else numbers[id(x)] for x in node.operands]
                for place in places:
                    uses[place] += 1
                uses.append(0)
                op = node.op
                if type(op) is Projection:
                    uses[places[0]] = NEVER
                    identities.append(op.number)
                elif type(op) is Placeholder:
                    raise no_contents(op.name)
                else:
                    identities.append(id(op))
                identities += places
                identities.append(END)
                steps.append((op, *places))
            stack.pop()
            numbers[mine] = len(order)
            order.append(node)

    def _add_leaf(self, node: Lazy) -> None:
        self.uses.append(NEVER)
        self.identities.append(id(node.type))
        self.steps.append(node.type)
        assert node.held is not None
        self.leaves.append(node.held)


def _settle(node: Lazy, array: Array) -> None:
    node.held = array
    if not node.type.is_static:
        node.type = array_type(array.shape, array.dtype)
    if node.phase == FREE:
        node.op, node.operands = None, ()


@lru_cache(KEPT)
def _kept(key: Key) -> Model:
    return _program(key.structure)


@lru_cache(KEPT)
def _program(structure: Structure) -> Model:
    """The compiled program of a structure; its inputs are the steps that are types."""
    build = GraphBuilder("tensors")
    results: list[tuple[str, ...]] = []
    for number, step in enumerate(structure.steps):
        if isinstance(step, TensorType):
            results.append((build.input(f"x{number}", step),))
            continue
        op: Any = step[0]
        operands: tuple[int, ...] = step[1:]
        if isinstance(op, Projection):
            results.append((results[operands[0]][op.number],))
            continue
        if isinstance(op, Alias):
            results.append(results[operands[0]])
            continue
        names = ["" if n == ABSENT else results[n][0] for n in operands]
        results.append(build.add(op, *names))
    made = [build.emit(Identity(), results[n][0]) for n in structure.outputs]
    return compile(build.build(made))


def no_contents(name: str) -> TracingError:
    """What is wrong with asking for a value that depends on the traced input ``name``."""
    return TracingError(
        f"the value asked for depends on {name!r}, which has no contents while it is traced",
        callers_line(),
        "use modelcc.where, cond, while_loop or scan in place of Python's if, while and for, "
        "or make the argument static",
    )
