"""What a target is: how tensor programs become code for one kind of machine, and run there.

Third parties add targets by the entry point group ``modelcc.targets``: a function
``(TargetOptions) -> Target``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from modelcc.artifact.file import Artifact
from modelcc.ir.capacity import Capacity
from modelcc.ir.graph import Graph
from modelcc.ir.library import Callee
from modelcc.ir.loop import Function
from modelcc.ir.memory_rules import DEFAULT_RULES, MemoryRules
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.pass_base import Pass
from modelcc.passes.tensor.inline import InlineStages
from modelcc.runtime.session import Session
from modelcc.targets.kernel_use import DeviceFacts

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many parts of it are done and how many there are."""


ON_MATRIX_UNITS = TF32, TF32X3 = "tf32", "tf32x3"
"""Precisions of products of f32 that a target may have instructions for: operands of 10 bits of
mantissa, and three products of two such numbers for each operand."""


@dataclass(frozen=True)
class TargetOptions:
    """What a user can ask of a target.

    ``cpu`` names a processor in LLVM's spelling (empty: this machine's), ``optimize`` is 0 to 3
    and ``threads`` the number of threads that schedules are laid out for.  ``winograd`` and
    ``strassen`` allow algorithms that round otherwise.  ``schedule`` is the text of schedules for
    some of the kernels; ``machine`` has numbers that take the place of what is known of the
    processor, and ``tuned`` keys and schedules of kernels, some of which the program may have.
    Kernels may call ``libraries``, names with paths (empty: wherever they are found): with
    ``kernels`` ``library`` wherever these can compute, with ``auto`` where that gains.  There are
    ``ram`` bytes of memory (None: enough).
    ``variant`` is what follows the target's name, as 1 in ``opencl:1``.  ``precision`` is how
    products multiply operands that are f32: as they are, rounded to :data:`TF32`, or as two such
    numbers each (:data:`TF32X3`).
    """

    cpu: str = ""
    optimize: int = 2
    threads: int = 1
    winograd: bool = True
    strassen: bool = True
    schedule: str = ""
    machine: tuple[tuple[str, float], ...] = ()
    tuned: tuple[tuple[str, str], ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()
    kernels: str = "generated"
    ram: int | None = None
    variant: str = ""
    precision: str = "f32"


@dataclass(frozen=True)
class GraphPasses:
    """What a target does to graphs, among the passes that fit any machine: to ``functions`` that
    would be written out in other ops, to products of ``quantised`` numbers, once these are
    recognised, to ``convolutions``, before attention is, and to ``products`` after that; how many
    ``channels`` its kernels take at once, so that fewer are no gain; and whether constants of
    ``narrow`` floats, of 8 bits, stay so for kernels that multiply them."""

    functions: tuple[Pass[Graph], ...] = ()
    quantised: tuple[Pass[Graph], ...] = ()
    convolutions: tuple[Pass[Graph], ...] = ()
    products: tuple[Pass[Graph], ...] = ()
    channels: int = 1
    narrow: bool = False


_USUAL = InlineStages()


@dataclass(frozen=True)
class TensorPasses:
    """What a target does to tensor programs, among the passes that fit any machine: to the
    ``layouts`` of tensors first, to ``operands`` of products once stages are inlined, to
    ``kernels`` once they are fused, and to the ``whole`` program at last; and how stages are
    inlined for it."""

    layouts: tuple[Pass[TensorProgram], ...] = ()
    operands: tuple[Pass[TensorProgram], ...] = ()
    kernels: tuple[Pass[TensorProgram], ...] = ()
    inline: InlineStages = _USUAL
    whole: tuple[Pass[TensorProgram], ...] = ()


@dataclass(frozen=True)
class BuildConfig:
    """Where and how to build; it does not change what is built.

    ``cache`` is a folder for finished pieces (None: keep nothing), ``jobs`` the number of
    processes that may compile at the same time.
    """

    cache: Path | None = None
    jobs: int = 1
    progress: Progress | None = None

    def report(self, what: str, done: int, total: int) -> None:
        """Tell the progress callback, if there is one."""
        if self.progress is not None:
            self.progress(what, done, total)


SCHEDULE = "schedule"
"""The form that is how kernels run."""

POOL = "pool"
"""The module of the thread pool."""

MODULE_LINE = "; ---- module "
"""Begins the line before each module where a text holds several; the module's name follows."""


@dataclass(frozen=True)
class Module:
    """One translation unit in the target's source language."""

    name: str
    text: str


OnFunction = Callable[[Function], None]
"""Told of a callee of the program that is being scheduled."""


def joined(modules: Sequence[Module], texts: Sequence[str]) -> bytes:
    """Texts made of ``modules`` as one, with a line before each that names its module."""
    if len(texts) == 1:
        return texts[0].encode()
    named = zip(modules, texts, strict=True)
    return "\n".join(f"{MODULE_LINE}{m.name}\n{text}" for m, text in named).encode()


class Target(Protocol):
    """One kind of machine; implementations are frozen dataclasses."""

    @property
    def name(self) -> str:
        """What users call it, ``native``."""
        ...

    @property
    def description(self) -> str:
        """The machine in a few words, for ``modelcc targets``."""
        ...

    @property
    def key(self) -> str:
        """Everything about the target that determines what it builds, as text."""
        ...

    @property
    def forms(self) -> tuple[str, ...]:
        """What :meth:`render` can print: of ``llvm``, ``c``, ``asm``, ``obj``, ``so`` …"""
        ...

    @property
    def capacity(self) -> Capacity:
        """What ops that write their loops (sort, top-k) may take of the machine."""
        ...

    @property
    def usual_dims(self) -> Mapping[str, int]:
        """Sizes of named dimensions for which a user gives none."""
        return dict[str, int]()

    @property
    def memory(self) -> MemoryRules:
        """What the arena is to be like."""
        return DEFAULT_RULES

    @property
    def has_tf32(self) -> bool:
        """Whether it has :data:`TF32` and :data:`TF32X3`."""
        return False

    def for_linking(self) -> Self:
        """The same for code that others load, into processes that ask the system for nothing."""
        return self

    def graph_passes(self) -> GraphPasses:
        """Its rewrites of graphs; none is what an accelerator with plain tensors wants."""
        ...

    def tensor_passes(self) -> TensorPasses:
        """Its rewrites of tensor programs: algorithms and layouts that pay on this machine."""
        ...

    def program_passes(self) -> tuple[Callable[[Program], Program], ...]:
        """Its rewrites of programs whose steps are in order, before their memory is planned."""
        return ()

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Kernels become loop functions, each of which ``on_function`` is told of as soon as it is
        there; constants are packed as these want them."""
        ...

    def list_schedules(self, program: TensorProgram) -> str:
        """How each distinct kernel runs, in a text to edit; asked of those whose :attr:`forms`
        have ``schedule``."""
        ...

    def legalize(self, function: Function) -> Function:
        """A loop function in the constructs that the target's emitter prints."""
        ...

    def emit(self, program: Program) -> tuple[Module, ...]:
        """Source modules of a program: its functions and the one that runs them."""
        ...

    def complete(self, program: Program) -> str:
        """Everything but the weights in one source text, to read or to take elsewhere."""
        ...

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """Source modules of functions alone."""
        ...

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """Object files of ``modules``, in their order."""
        ...

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """``modules`` in one of :attr:`forms`."""
        ...

    def device_facts(self, program: Program, objects: Sequence[bytes] = ()) -> DeviceFacts | None:
        """What the kernels of a program take of a device, by its ``objects`` if these are built;
        None for what is no device."""
        return None

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """The finished artifact; ``notes`` are texts to carry along, by name."""
        ...

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact, ready to run in this process on ``threads`` threads."""
        ...

    def build_context(
        self, config: BuildConfig, early: bool = True
    ) -> AbstractContextManager[BuildContext]:
        """For one compilation in ``config``; in the background if ``early`` and the target can."""
        return nullcontext(in_order(self, config))


@dataclass(frozen=True)
class BuildContext:
    """How one program becomes an artifact: the target's own functions, or what gives the same.

    It hears of the program that is about to be ``scheduling``, and of each function as soon as
    that is ``scheduled``, to go on with it in the background.
    """

    legalize: Callable[[Function], Function]
    emit: Callable[[Program], tuple[Module, ...]]
    build: Callable[[Sequence[Module]], tuple[bytes, ...]]
    package: Callable[[Program, Sequence[bytes], Mapping[str, str]], Artifact]
    scheduling: Callable[[TensorProgram], None] = lambda program: None
    scheduled: OnFunction = lambda function: None


def in_order(target: Target, config: BuildConfig) -> BuildContext:
    """The context in which one stage follows the other."""
    build = partial(target.build, config=config)
    return BuildContext(target.legalize, target.emit, build, target.package)
