"""Passes over straight-line tensor programs, applied inside branches and loops.

Each run of kernels and views between branches and loops, at any depth, is a program of its own:
its inputs are the tensors it reads from elsewhere, its outputs those that others read.  So passes
need not handle regions, and none moves work across their borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds
from modelcc.ir.naming import Names
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import Item, TensorProgram, item_inputs, item_outputs, item_tensors
from modelcc.ir.tensor_renaming import rename_tensors
from modelcc.passes.pass_base import Pass


@dataclass(frozen=True)
class InRegions:
    """Runs ``step`` on every straight-line run of items; once on a program without regions."""

    step: Pass[TensorProgram]

    def __call__(self, program: TensorProgram) -> TensorProgram:
        if not any(isinstance(item, Branch | Repeat) for item in program.items):
            return self.step(program)
        runs = _Runs(self.step, program)
        items = runs.items(program.items, program.dims, frozenset(program.outputs))
        used = {n for item in items for n in item_tensors(item)} | set(program.outputs)
        constants = {n: c for n, c in runs.constants.items() if n in used}
        whole = replace(program, types=runs.types, constants=constants)
        return whole.with_items(items)


class _Runs:
    """The program's tensors so far; new names of one run are distinct from those of others."""

    def __init__(self, step: Pass[TensorProgram], program: TensorProgram) -> None:
        self._step = step
        self._program = program
        self._names = Names(program.types)
        self.types = dict(program.types)
        self.constants = dict(program.constants)

    def items(
        self, items: Sequence[Item], dims: Bounds, needed: frozenset[str]
    ) -> tuple[Item, ...]:
        """``items`` with the pass applied to all inner runs; ``needed`` are read after them."""
        done: list[Item] = []
        for group in reversed(_groups(items)):
            first = group[0]
            match first:
                case Branch():
                    results = frozenset(first.outputs)
                    then = self.items(first.then, dims, results)
                    other = self.items(first.other, dims, results)
                    group = [replace(first, then=then, other=other)]
                case Repeat():
                    results = frozenset((*(c.next for c in first.carries), *first.filled))
                    body = self.items(first.body, first.inside(dims), results)
                    group = [replace(first, body=body)]
                case _:
                    group = list(self._run(group, dims, needed))
            needed |= {n for item in group for n in item_inputs(item)}
            done = [*group, *done]
        return tuple(done)

    def _run(self, items: Sequence[Item], dims: Bounds, needed: frozenset[str]) -> tuple[Item, ...]:
        made = dict.fromkeys(n for item in items for n in item_outputs(item))
        read = dict.fromkeys(n for item in items for n in item_inputs(item) if n not in made)
        program = TensorProgram(
            self._program.name,
            tuple(n for n in read if n not in self.constants),
            tuple(n for n in made if n in needed),
            tuple(items),
            {},
            {n: self.constants[n] for n in read if n in self.constants},
            dims,
        )
        types = {n: self.types[n] for n in program.tensors()}
        result = self._step(replace(program, types=types))
        return self._merged(result, frozenset(types))

    def _merged(self, result: TensorProgram, given: frozenset[str]) -> tuple[Item, ...]:
        new = {n: self._names.fresh(n) for n in result.types if n not in given}
        self.types |= {new.get(n, n): t for n, t in result.types.items()}
        self.constants |= {new.get(n, n): c for n, c in result.constants.items()}
        changed = {old: name for old, name in new.items() if old != name}
        return (
            tuple(rename_tensors(item, changed) for item in result.items)
            if changed
            else result.items
        )


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """Runs of kernels and views, and branches and loops one by one."""
    groups: list[list[Item]] = []
    for item in items:
        straight = not isinstance(item, Branch | Repeat)
        if straight and groups and not isinstance(groups[-1][0], Branch | Repeat):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
