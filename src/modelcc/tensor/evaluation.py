"""Evaluation of pending values: one compiled program per structure of nodes and types.

Lazy evaluation with a cache of compiled graphs: Suhan et al., "LazyTensor: combining eager
execution with domain-specific compilers" (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import getrefcount
from typing import Any, cast

import numpy as np

from modelcc.api import compile
from modelcc.ir.types import Array
from modelcc.model import Model
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
from modelcc.tensor.structures import ABSENT, Structure, graph_of_structure, without_places

KEPT = 1024
"""Capacity of the cache of programs."""

SMALL = 32
"""Steps up to which compiling a structure is faster than the cache on disk."""

END = -2
"""Terminates the numbers of a step."""

MARKS = (Projection, Alias)
"""Makers of nodes with one operand that are not ops."""

MANY = 1 << 62
"""Use count of a node that cannot be an output, as it has several results."""


@dataclass(frozen=True)
class PlacedProgram:
    """A program, and its inputs after the arrays of a structure."""

    model: Model
    places: tuple[Array, ...] = ()


class Key:
    """A structure by the identity of its ops and types, for fast lookup.

    The structure, which is built on demand, keeps them alive, so that their identities stay
    unique.
    """

    __slots__ = ("_found", "_structure", "identities")

    def __init__(self, identities: tuple[int, ...], found: _Pending) -> None:
        """``identities`` are all those of the structure of ``found``, flattened."""
        self.identities = identities
        self._found: _Pending | None = found
        self._structure: Structure | None = None

    def structure(self) -> Structure:
        """Its nodes; their arrays are released."""
        if self._structure is None:
            assert self._found is not None
            self._structure = self._found.structure()
        self._found = None
        return self._structure

    def __hash__(self) -> int:
        return hash(self.identities)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.identities == other.identities


def evaluate(wanted: Sequence[Lazy]) -> None:
    """Compute ``wanted``, and those of their pending operands that are held elsewhere.

    :class:`TracingError` if one of them depends on a value without contents.
    """
    waiting = [node for node in wanted if node.held is None]
    if not waiting:
        return
    found = _Pending()
    found.visit(waiting)
    found.choose(waiting)
    key = Key(tuple(found.row), found)
    program = _kept(key)
    results = results_of(program.model, (*found.leaves, *program.places))
    for node, array in zip(found.outputs, results, strict=True):
        _settle(node, array)


def results_of(model: Model, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """All results of a compiled model."""
    results: Any = model(*inputs)
    return cast("tuple[Array, ...]", results if isinstance(results, tuple) else (results,))


def _references() -> int:
    """Number of references to an object that is in one tuple and in the inspected local."""
    operands = (object(),)
    stack = [operands[0]]
    node = stack.pop()
    return getrefcount(node)


USED_ONCE = _references()
"""References to a node in a local that is used as an operand once, and not held elsewhere."""


class _Pending:
    """Pending nodes: their numbers, operands first, and the arrays among them.

    ``row`` has the identities of ops and types with the numbers of operands, step by step, and then
    the numbers of ``outputs``.  ``shared`` are nodes that are operands twice or held elsewhere.
    """

    def __init__(self) -> None:
        self.numbers: dict[Lazy, int] = {}
        self.row: list[int] = []
        self.leaves: list[Array] = []
        self.shared: list[Lazy] = []
        self.outputs: list[Lazy] = []

    def visit(self, wanted: Sequence[Lazy]) -> None:
        """Add ``wanted`` and their operands, transitively, down to computed ones.

        A hot path, hence the plain loop, with a special case for two operands.
        """
        numbers, row = self.numbers, self.row
        number_of = numbers.get
        stack = list(wanted)
        while stack:
            node = stack.pop()
            while node not in numbers:
                operands = node.operands
                if len(operands) == 2:
                    a, b = operands
                    first = number_of(a)
                    if first is None:
                        if a is not None and a.held is None:
                            stack.append(node)
                            node = a
                            continue
                        first = self._leaf(a)
                    second = number_of(b)
                    if second is None:
                        if b is not None and b.held is None:
                            stack.append(node)
                            node = b
                            continue
                        second = self._leaf(b)
                    row += id(node.op), first, second, END
                elif len(operands) == 1 and type(node.op) not in MARKS:
                    (a,) = operands
                    first = number_of(a)
                    if first is None:
                        if a.held is None:
                            stack.append(node)
                            node = a
                            continue
                        first = self._leaf(a)
                    row += id(node.op), first, END
                elif not self._row_of(node, stack):
                    break
                if getrefcount(node) != USED_ONCE:
                    self.shared.append(node)
                numbers[node] = len(numbers)
                break

    def _row_of(self, node: Lazy, stack: list[Lazy]) -> bool:
        """Add the step of ``node``, unless operands have to come first: then push all to
        ``stack``."""
        places: list[int] = []
        stack.append(node)
        depth = len(stack)
        for x in node.operands:
            number = self.numbers.get(x)
            if number is None and x is not None and x.held is None:
                stack.append(x)
            elif len(stack) == depth:
                places.append(self._leaf(x) if number is None else number)
        if len(stack) > depth:
            return False
        stack.pop()
        op = node.op
        if type(op) is Placeholder:
            raise no_contents(op.name)
        self.row.append(op.number if type(op) is Projection else id(op))
        self.row += places
        self.row.append(END)
        return True

    def _leaf(self, node: Lazy | None) -> int:
        """The number of an operand that has an array, or is absent."""
        if node is None:
            return ABSENT
        assert node.held is not None
        number = self.numbers.get(node)
        if number is None:
            number = self.numbers[node] = len(self.numbers)
            self.row.append(id(node.type))
            self.leaves.append(node.held)
        return number

    def choose(self, asked: Sequence[Lazy]) -> None:
        """Determine the outputs: ``asked`` nodes, and nodes held elsewhere.

        The latter would be recomputed on demand otherwise: reference counts affect the cost, never
        the result.
        """
        uses = dict.fromkeys(self.shared, 0)
        if len(uses) > len(asked):
            self._count(uses)
        wanted = set(asked)
        for node in self.shared:
            # Held by the list of shared nodes, the numbers, the uses, and this loop.
            held = getrefcount(node) > uses[node] + USED_ONCE + 2
            if node in wanted or held:
                self.outputs.append(node)
        self.row += [self.numbers[node] for node in self.outputs]

    def _count(self, uses: dict[Lazy, int]) -> None:
        """Count uses of the keys of ``uses`` as operands; a node of several results is no output.

        A separate function, as the caller's locals would count as references.
        """
        for node in self.numbers:
            for x in node.operands if node.held is None else ():
                if x in uses:
                    uses[x] += 1
            if type(node.op) is Projection:
                uses[node.operands[0]] = MANY

    def structure(self) -> Structure:
        """The structure encoded in ``row``."""
        numbers = self.numbers
        steps: list[Any] = [
            node.type
            if node.held is not None
            else (node.op, *[ABSENT if x is None else numbers[x] for x in node.operands])
            for node in numbers
        ]
        return Structure(tuple(steps), tuple(numbers[node] for node in self.outputs))


def _settle(node: Lazy, array: Array) -> None:
    node.held = array
    if not node.type.is_static:
        node.type = array_type(array.shape, array.dtype)
    if node.phase == FREE:
        node.op, node.operands = None, ()


@lru_cache(KEPT)
def _kept(key: Key) -> PlacedProgram:
    """The program of a structure: its own, or a general one if an earlier structure differed only
    in offsets."""
    structure = key.structure()
    general, places = without_places(structure)
    if not places:
        return PlacedProgram(_program(structure))
    first = _first_of(general)
    if not first:
        first.append(structure)
    if first[0] == structure:
        return PlacedProgram(_program(structure))
    return PlacedProgram(_program(general), (np.array(places, np.int64),))


@lru_cache(KEPT)
def _first_of(general: Structure) -> list[Structure]:
    """A slot for the first structure that equals ``general`` except for its offsets."""
    return []


@lru_cache(KEPT)
def _program(structure: Structure) -> Model:
    """The compiled program of a structure; its inputs are the steps that are types, and the
    missing offsets."""
    graph = graph_of_structure(structure)
    return compile(graph, cache=None) if len(structure.steps) <= SMALL else compile(graph)


def no_contents(name: str) -> TracingError:
    """The error of reading a value that depends on the traced input ``name``."""
    return TracingError(
        f"the value asked for depends on {name!r}, which has no contents while it is traced",
        callers_line(),
        "use modelcc.where, cond, while_loop or scan in place of Python's if, while and for, "
        "or make the argument static",
    )
