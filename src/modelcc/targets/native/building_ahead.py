"""A native target that has kernels built while others are still being scheduled.

LLVM works in processes of its own.  Here they get each function as soon as it is scheduled, not
when all have been scheduled, ordered, planned and emitted; what is built is the same.  The memory
for constants is made ready meanwhile, too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from modelcc.artifact.constants import padded_size
from modelcc.artifact.memory import Memory
from modelcc.ir.loop import Function
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram, item_inputs, leaf_items
from modelcc.targets.base import Module, Target, Workplace
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.native.memory_ahead import MemoryAhead
from modelcc.targets.native.parallel_build import Builder
from modelcc.targets.native.target import NativeTarget, progress_of


@contextmanager
def building_ahead(target: Target, workplace: Workplace) -> Generator[Target]:
    """For one compilation in ``workplace``: the target that builds ahead where ``target`` can.

    That takes several processes, which end with the context.
    """
    if type(target) is not NativeTarget or workplace.jobs < 2:
        yield target
        return
    cache = target.object_cache(workplace)
    builder = Builder(target.machine, target.codegen, workplace.jobs, cache)
    with closing(builder), closing(MemoryAhead()) as memory:
        yield _BuildingAhead(
            target.machine, target.cpu, target.codegen, target.options, builder, memory
        )


@dataclass(frozen=True)
class _BuildingAhead(NativeTarget):
    """``legal`` and ``texts`` have what was made of functions, by identity: they are large to
    compare.  Beside it lies the function, lest its identity passes to another one."""

    builder: Builder = field(repr=False)
    memory: MemoryAhead = field(repr=False)
    legal: dict[int, tuple[Function, Function]] = field(
        default_factory=dict[int, tuple[Function, Function]], repr=False
    )
    texts: dict[tuple[object, ...], tuple[Function, str]] = field(
        default_factory=dict[tuple[object, ...], tuple[Function, str]], repr=False
    )

    def schedule(self, program: TensorProgram) -> Program:
        """As ever; building begins."""
        read = {name for item in leaf_items(program.items) for name in item_inputs(item)}
        constants = (constant for name, constant in program.constants.items() if name in read)
        self.memory.expect(padded_size(constants))
        return schedule_program(program, self.cpu, self._start, self.wanted)

    def allocate(self, size: int) -> Memory:
        """As ever; it is there by now."""
        return self.memory.take(size)

    def _start(self, function: Function) -> None:
        self.builder.start(self._text(self.legalize(function)))

    def legalize(self, function: Function) -> Function:
        """As ever; each function once."""
        known = self.legal.get(id(function))
        if known is None:
            known = self.legal[id(function)] = (function, super().legalize(function))
        return known[1]

    def _text(self, function: Function) -> str:
        place = (id(function.body), function.name, function.parameters, function.sizes)
        known = self.texts.get(place)
        if known is None:
            bare = replace(function, source=())  # which steps share it is not known yet
            known = self.texts[place] = (function, super().emit_functions([bare])[0].text)
        return known[1]

    def emit_functions(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """As ever, without the comments that name the sources of kernels."""
        texts = (self._text(function) for function in functions)
        return tuple(Module(f"kernels{n}", text) for n, text in enumerate(texts))

    def build_optimised(self, texts: Sequence[str], workplace: Workplace) -> list[bytes]:
        """As ever; most is done by now."""
        return self.builder.build(texts, progress_of(workplace))
