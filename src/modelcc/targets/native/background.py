"""Kernels built in the background while others are still being scheduled.

LLVM works in processes of its own.  Here they get each function as soon as it is scheduled, not
when all have been scheduled, ordered, planned and emitted; what is built is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from threading import Event, Thread
from typing import Protocol, TypeAlias

import numpy as np

from modelcc.artifact.constants import padded_size
from modelcc.artifact.file import Artifact
from modelcc.artifact.memory import HUGE_PAGE, Memory
from modelcc.ir.library import Callee, LibraryFunction
from modelcc.ir.loop import Function
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram, item_inputs, leaf_items
from modelcc.targets.base import BuildConfig, BuildContext, Module
from modelcc.targets.native.parallel_build import ParallelBuilder, progress_of

Optimised: TypeAlias = Callable[[Sequence[str]], Sequence[bytes]]
"""Object files of the texts of modules."""


WORTH_A_THREAD = 64 << 20
"""Bytes: less is there in no time."""

SPARE = 4
"""A block may be larger than expected by one part in so many; what is not used costs nothing."""

_STEP = 8 * HUGE_PAGE
_PAGE = 4096


class KernelTarget(Protocol):
    """A target that builds kernels one by one."""

    def legalize(self, function: Function) -> Function: ...
    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]: ...

    def assembled(self, program: Program, kernels: Sequence[Module]) -> tuple[Module, ...]:
        """All modules of a program, given those of its kernels."""
        ...

    def built(
        self, modules: Sequence[Module], config: BuildConfig, optimised: Optimised
    ) -> tuple[bytes, ...]:
        """Object files, of most modules those that ``optimised`` makes of their texts."""
        ...

    def package(
        self,
        program: Program,
        objects: Sequence[bytes],
        notes: Mapping[str, str],
        allocate: Callable[[int], Memory] = Memory,
    ) -> Artifact:
        """The finished artifact; ``allocate`` gives memory for at least so many bytes."""
        ...


@contextmanager
def in_background(
    target: KernelTarget, builder: ParallelBuilder, config: BuildConfig
) -> Generator[BuildContext]:
    """For one compilation; the processes of ``builder`` end with it."""
    with closing(builder), closing(Preallocation()) as memory:
        yield _Background(target, config, builder, memory).context


class _Background:
    """What was made of functions is kept by their names; a function of the same name that is
    another is made anew."""

    def __init__(
        self,
        target: KernelTarget,
        config: BuildConfig,
        builder: ParallelBuilder,
        memory: Preallocation,
    ) -> None:
        self._target = target
        self._build_config = config
        self._builder = builder
        self._memory = memory
        self._legal: dict[str, tuple[Function, Function]] = {}
        self._texts: dict[str, tuple[Function, str]] = {}

    @property
    def context(self) -> BuildContext:
        """What is done for the stages."""
        return BuildContext(
            self.legalize, self.emit, self.build, self.package, self.scheduling, self.scheduled
        )

    def scheduling(self, program: TensorProgram) -> None:
        """Memory for its constants is made ready."""
        read = {name for item in leaf_items(program.items) for name in item_inputs(item)}
        constants = (constant for name, constant in program.constants.items() if name in read)
        self._memory.expect(padded_size(constants))

    def scheduled(self, function: Function) -> None:
        """Building it begins."""
        self._builder.start(self._text(self.legalize(function)))

    def legalize(self, function: Function) -> Function:
        """As the target does; each function once."""
        known, legal = self._legal.get(function.name, (None, function))
        if known is not function:
            legal = self._target.legalize(function)
            self._legal[function.name] = function, legal
        return legal

    def _text(self, function: Function) -> str:
        """Without a comment that names the sources, for which steps share it is not known yet."""
        bare = replace(function, source=())
        known, text = self._texts.get(function.name, (None, ""))
        if known is None or not _same(known, bare):
            (module,) = self._target.emit_functions([bare])
            text = module.text
            self._texts[function.name] = bare, text
        return text

    def _callee_text(self, callee: Callee) -> str:
        """A call of a library is not worth the background."""
        if isinstance(callee, LibraryFunction):
            return self._target.emit_functions([callee])[0].text
        return self._text(callee)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """As the target does, without the comments that name the sources of kernels."""
        texts = map(self._callee_text, program.callees)
        kernels = [Module(f"kernels{n}", text) for n, text in enumerate(texts)]
        return self._target.assembled(program, kernels)

    def build(self, modules: Sequence[Module]) -> tuple[bytes, ...]:
        """As the target does; most is done by now."""
        progress = progress_of(self._build_config)
        return self._target.built(
            modules, self._build_config, lambda texts: self._builder.build(texts, progress)
        )

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """As the target does; memory is there by now."""
        return self._target.package(program, objects, notes, self._memory.take)


def _same(one: Function, other: Function) -> bool:
    """Bodies are large to compare: they are the same if they are one object."""
    alike = (one.parameters, one.sizes) == (other.parameters, other.sizes)
    return alike and one.body is other.body


class Preallocation:
    """One block of memory for constants, made ready by a thread while others are compiled.

    A system gives and clears memory when it is first written, which takes a second for 1 to 10 GB
    (virtual machines being slow at it), and is not the interpreter's work.
    """

    def __init__(self) -> None:
        """No memory yet."""
        self._block: Memory | None = None
        self._thread: Thread | None = None
        self._enough = Event()

    def expect(self, size: int) -> None:
        """Begin to make ``size`` bytes ready, if that is worth it."""
        if size < WORTH_A_THREAD or self._thread is not None:
            return
        with suppress(MemoryError):  # who needs it will say so
            self._block = Memory(size + size // SPARE)
            self._thread = Thread(target=self._touch, args=(self._block, size), daemon=True)
            self._thread.start()

    def take(self, size: int) -> Memory:
        """At least ``size`` bytes, all zero, which are the caller's from now on."""
        self.close()
        block, self._block = self._block, None
        if block is None or block.size < size:
            return Memory(size)
        block.release(size)
        return block

    def close(self) -> None:
        """End the thread."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()

    def _touch(self, block: Memory, size: int) -> None:
        pages = np.frombuffer(block.view, np.uint8)[:size:_PAGE]
        step = _STEP // _PAGE
        for start in range(0, len(pages), step):
            if self._enough.is_set():
                return
            pages[start : start + step] = 0
