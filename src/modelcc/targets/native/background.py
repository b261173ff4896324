"""Kernels built in the background while others are still being scheduled.

LLVM runs in separate processes.  Here they receive each function as soon as it is scheduled, not
when all have been scheduled, ordered, planned and emitted; the result is the same.
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
"""Minimum bytes: less is allocated immediately."""

SPARE = 4
"""Fraction by which a block may exceed the expected size; unused memory costs nothing."""

_STEP = 8 * HUGE_PAGE
_PAGE = 4096


class KernelTarget(Protocol):
    """A target that builds kernels individually."""

    def legalize(self, function: Function) -> Function: ...
    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]: ...

    def assembled(self, program: Program, kernels: Sequence[Module]) -> tuple[Module, ...]:
        """All modules of a program, given those of its kernels."""
        ...

    def built(
        self, modules: Sequence[Module], config: BuildConfig, optimised: Optimised
    ) -> tuple[bytes, ...]:
        """Object files, ``optimised`` compiles those of most modules."""
        ...

    def package(
        self,
        program: Program,
        objects: Sequence[bytes],
        notes: Mapping[str, str],
        allocate: Callable[[int], Memory] = Memory,
    ) -> Artifact:
        """The finished artifact; ``allocate`` returns memory of at least that many bytes."""
        ...


@contextmanager
def in_background(
    target: KernelTarget, builder: ParallelBuilder, config: BuildConfig
) -> Generator[BuildContext]:
    """The context of one compilation; the processes of ``builder`` end with it."""
    with closing(builder), closing(Preallocation()) as memory:
        yield _Background(target, config, builder, memory).context


class _Background:
    """Results are cached by the names of functions; a different function of the same name is
    rebuilt."""

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
        """Callbacks for the stages."""
        return BuildContext(
            self.legalize, self.emit, self.build, self.package, self.scheduling, self.scheduled
        )

    def scheduling(self, program: TensorProgram) -> None:
        """Starts to preallocate memory for its constants."""
        read = {name for item in leaf_items(program.items) for name in item_inputs(item)}
        constants = (constant for name, constant in program.constants.items() if name in read)
        self._memory.expect(padded_size(constants))

    def scheduled(self, function: Function) -> None:
        """Starts to build it."""
        self._builder.start(self._text(self.legalize(function)))

    def legalize(self, function: Function) -> Function:
        """As the target does; each function only once."""
        known, legal = self._legal.get(function.name, (None, function))
        if known is not function:
            legal = self._target.legalize(function)
            self._legal[function.name] = function, legal
        return legal

    def _text(self, function: Function) -> str:
        """Its text without the comment that names its sources: the steps that share it are not
        known yet."""
        bare = replace(function, source=())
        known, text = self._texts.get(function.name, (None, ""))
        if known is None or not _same(known, bare):
            (module,) = self._target.emit_functions([bare])
            text = module.text
            self._texts[function.name] = bare, text
        return text

    def _callee_text(self, callee: Callee) -> str:
        """Library calls are not built in the background."""
        if isinstance(callee, LibraryFunction):
            return self._target.emit_functions([callee])[0].text
        return self._text(callee)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """As the target does, without comments on the sources of kernels."""
        texts = map(self._callee_text, program.callees)
        kernels = [Module(f"kernels{n}", text) for n, text in enumerate(texts)]
        return self._target.assembled(program, kernels)

    def build(self, modules: Sequence[Module]) -> tuple[bytes, ...]:
        """As the target does; most of it is done already."""
        progress = progress_of(self._build_config)
        return self._target.built(
            modules, self._build_config, lambda texts: self._builder.build(texts, progress)
        )

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """As the target does; memory is preallocated."""
        return self._target.package(program, objects, notes, self._memory.take)


def _same(one: Function, other: Function) -> bool:
    """Bodies are large to compare: equal if they are the same object."""
    alike = (one.parameters, one.sizes) == (other.parameters, other.sizes)
    return alike and one.body is other.body


class Preallocation:
    """One block of memory for constants, prepared by a thread while others are compiled.

    The system allocates and clears pages on first write, which takes a second for 1 to 10 GB (slow
    in virtual machines), and needs no interpreter lock.
    """

    def __init__(self) -> None:
        """No memory yet."""
        self._block: Memory | None = None
        self._thread: Thread | None = None
        self._enough = Event()

    def expect(self, size: int) -> None:
        """Starts to prepare ``size`` bytes, if large enough."""
        if size < WORTH_A_THREAD or self._thread is not None:
            return
        with suppress(MemoryError):  # its user will report it
            self._block = Memory(size + size // SPARE)
            self._thread = Thread(target=self._touch, args=(self._block, size), daemon=True)
            self._thread.start()

    def take(self, size: int) -> Memory:
        """At least ``size`` bytes, zeroed, owned by the caller from now on."""
        self.close()
        block, self._block = self._block, None
        if block is None or block.size < size:
            return Memory(size)
        block.release(size)
        return block

    def close(self) -> None:
        """Ends the thread."""
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
