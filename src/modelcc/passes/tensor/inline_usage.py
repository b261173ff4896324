"""Who reads what may be computed where it is read, and what of it cannot be a kernel with that."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import substitute
from modelcc.ir.scalar_tree import cost, reads
from modelcc.ir.tensor import Kernel, Scatter, Stage, TensorProgram, item_inputs


@dataclass(frozen=True)
class InlineUsage:
    """The ``readers`` of tensors, named once for each read, how many ``writers`` each has, which
    are ``pinned`` (outputs, viewed ones: they must exist in memory), ``reduced`` (sums and the
    like), ``finished`` (made of those, point by point), and which updates at places are made of
    (``scattered``)."""

    pinned: frozenset[str]
    reduced: frozenset[str]
    finished: frozenset[str]
    scattered: frozenset[str]
    readers: dict[str, list[Stage]]
    writers: dict[str, int]

    @staticmethod
    def of(program: TensorProgram) -> InlineUsage:
        """Of single-stage kernels, as they are lowered."""
        whole, scattered = set(program.outputs), set[str]()
        reduced: dict[str, Stage] = {}
        finished: dict[str, Stage] = {}
        readers: dict[str, list[Stage]] = {}
        writers: dict[str, int] = {}
        for item in program.items:
            if not isinstance(item, Kernel | Scatter):
                whole |= set(item_inputs(item))
                continue
            if isinstance(item, Scatter):
                whole.add(item.initial)
                scattered |= {read.tensor for read in reads(item.stage.body)}
            for stage in item.stages if isinstance(item, Kernel) else (item.stage,):
                writers[stage.output] = writers.get(stage.output, 0) + 1
                if stage.reduce:
                    reduced[stage.output] = stage
                for read in reads(stage.body):
                    readers.setdefault(read.tensor, []).append(stage)
                    made = reduced.get(read.tensor) or finished.get(read.tensor)
                    if not stage.reduce and made and same_points(stage, made):
                        finished[stage.output] = stage
        kinds = frozenset(reduced), frozenset(finished), frozenset(scattered)
        return InlineUsage(frozenset(whole), *kinds, readers, writers)

    def goes_to_another_kernel(self, stage: Stage) -> bool:
        """Whether ``stage``, with all that is inlined into it, is read once for each of its points
        and by what has other points, perhaps by way of movements: only inlining makes that one
        kernel.

        What follows a reduction is a kernel with that: of the same points, or of rows by numbers
        that they have in common, as in a norm.
        """
        made = {read.tensor for read in reads(stage.body)}
        rows = (name for name in made & self.finished if repeats(stage, name))
        if made & self.reduced or any(rows):
            return False
        while len(self.readers[stage.output]) == 1 and stage.output not in self.pinned:
            (reader,) = self.readers[stage.output]
            if reader.reduce or repeats(reader, stage.output):
                return False
            if stage.output in self.scattered or not same_points(stage, reader):
                return True
            if cost(reader.body) or not self.readers.get(reader.output):
                return False
            stage = reader
        return False


def same_points(one: Stage, other: Stage) -> bool:
    """Whether axes of both have the same extents, in whatever order."""
    first, second = (
        sorted((a.extent for a in stage.axes if a.extent != 1), key=str) for stage in (one, other)
    )
    return first == second


def repeats(reader: Stage, tensor: str) -> bool:
    """Whether ``reader`` has an axis along which it reads one element of ``tensor`` over again."""
    indices = {i for r in reads(reader.body) if r.tensor == tensor for i in r.indices}

    def stays(name: str) -> bool:
        """Whether neighbours along an axis, as those of a group, read the same element."""
        return all(substitute(i, {name: 0}) == substitute(i, {name: 1}) for i in indices)

    return any(a.extent != 1 and stays(a.name) for a in reader.axes)
