"""Producers with kernels as their only consumers, as candidates for fusion with these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.tensor import Kernel, TensorProgram, item_inputs

_NOBODY = frozenset[int]()


@dataclass(frozen=True)
class Makers:
    """By tensor: its only producer, and the kernels that read it.

    Kernels with results that items other than kernels read are not included.
    """

    makers: Mapping[str, Kernel]
    readers: Mapping[str, frozenset[int]]
    place: Mapping[int, int]

    @staticmethod
    def of(program: TensorProgram) -> Makers:
        kernels = [i for i in program.items if isinstance(i, Kernel)]
        written = Counter(s.output for k in kernels for s in k.stages)
        others = {t for i in program.items if not isinstance(i, Kernel) for t in item_inputs(i)}
        kept = others | set(program.outputs)
        alone = [k for k in kernels if all(written[t] == 1 and t not in kept for t in k.outputs)]
        readers: dict[str, set[int]] = {}
        for kernel in kernels:
            for name in kernel.inputs:
                readers.setdefault(name, set()).add(id(kernel))
        return Makers(
            {name: k for k in alone for name in k.outputs},
            {name: frozenset(ids) for name, ids in readers.items()},
            {id(kernel): place for place, kernel in enumerate(kernels)},
        )

    def with_maker(self, tensor: str, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...] | None:
        """``kernels`` with the producer of ``tensor`` if only they read it, in order."""
        maker = self.makers.get(tensor)
        if maker is None or maker in kernels:
            return None
        read_by = frozenset[int]().union(*(self.readers.get(t, _NOBODY) for t in maker.outputs))
        if not read_by <= {id(k) for k in kernels}:
            return None
        return tuple(sorted((maker, *kernels), key=lambda k: self.place[id(k)]))
