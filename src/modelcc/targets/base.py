"""The target interface: compiles tensor programs to code for one kind of machine, and runs it.

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
"""Receives what is being done, the number of finished parts and their total."""


ON_MATRIX_UNITS = TF32, TF32X3 = "tf32", "tf32x3"
"""Precisions of f32 products that a target may have instructions for: operands with 10 bits of
mantissa, and three products of operands split into two such numbers."""


@dataclass(frozen=True)
class TargetOptions:
    """Options of a target.

    ``cpu`` names a processor in LLVM's spelling (empty: this machine's), ``optimize`` is 0 to 3 and
    ``threads`` the number of threads that schedules target.  ``winograd`` and ``strassen`` allow
    algorithms with different rounding.  ``schedule`` is the text of schedules for some of the
    kernels; ``machine`` has numbers that override the processor's model, and ``tuned`` keys and
    schedules of kernels, some of which the program may have.  Kernels may call ``libraries``, names
    with paths (empty: the default search): with ``kernels`` ``library`` wherever these can compute,
    with ``auto`` where that gains.  There are ``ram`` bytes of memory (None: enough).
    ``variant`` is the suffix of the target's name, as 1 in ``opencl:1``.  ``precision`` is how
    products multiply f32 operands: exactly, rounded to :data:`TF32`, or split into two such numbers
    each (:data:`TF32X3`).
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
    """A target's passes over graphs, among those common to all machines: over ``functions`` that
    would otherwise be decomposed, over products of ``quantised`` numbers, once recognised, over
    ``convolutions``, before attention, and over ``products`` after that; the number of ``channels``
    that its kernels process at once, below which fewer gain nothing; and whether constants of
    ``narrow`` floats, of 8 bits, are kept for kernels that multiply them.  If these multiply bytes
    of any ``signs``, symmetric i8 stays signed."""

    functions: tuple[Pass[Graph], ...] = ()
    quantised: tuple[Pass[Graph], ...] = ()
    convolutions: tuple[Pass[Graph], ...] = ()
    products: tuple[Pass[Graph], ...] = ()
    channels: int = 1
    narrow: bool = False
    signs: bool = False


_USUAL = InlineStages()


@dataclass(frozen=True)
class TensorPasses:
    """A target's passes over tensor programs, among those common to all machines: over the
    ``layouts`` of tensors first, over ``operands`` of products once stages are inlined, over
    ``kernels`` once they are fused, and over the ``whole`` program at last; and how stages are
    inlined for it."""

    layouts: tuple[Pass[TensorProgram], ...] = ()
    operands: tuple[Pass[TensorProgram], ...] = ()
    kernels: tuple[Pass[TensorProgram], ...] = ()
    inline: InlineStages = _USUAL
    whole: tuple[Pass[TensorProgram], ...] = ()


@dataclass(frozen=True)
class BuildConfig:
    """Where and how to build; it does not change what is built.

    ``cache`` is a folder for finished pieces (None: no cache), ``jobs`` the number of concurrent
    compiler processes.
    """

    cache: Path | None = None
    jobs: int = 1
    progress: Progress | None = None

    def report(self, what: str, done: int, total: int) -> None:
        """Calls the progress callback, if there is one."""
        if self.progress is not None:
            self.progress(what, done, total)


SCHEDULE = "schedule"
"""The form that lists the schedules of kernels."""

POOL = "pool"
"""The module of the thread pool."""

MODULE_LINE = "; ---- module "
"""Prefix of the line before each module in a text of several; the module's name follows."""


@dataclass(frozen=True)
class Module:
    """One translation unit in the target's source language."""

    name: str
    text: str


OnFunction = Callable[[Function], None]
"""Receives each callee of the program that is being scheduled."""


def joined(modules: Sequence[Module], texts: Sequence[str]) -> bytes:
    """Texts made of ``modules`` as one, each preceded by a line that names its module."""
    if len(texts) == 1:
        return texts[0].encode()
    named = zip(modules, texts, strict=True)
    return "\n".join(f"{MODULE_LINE}{m.name}\n{text}" for m, text in named).encode()


class Target(Protocol):
    """One kind of machine; implementations are frozen dataclasses."""

    @property
    def name(self) -> str:
        """The name for users, ``native``."""
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
        """Output forms of :meth:`render`: of ``llvm``, ``c``, ``asm``, ``obj``, ``so`` …"""
        ...

    @property
    def capacity(self) -> Capacity:
        """What ops that write their loops (sort, top-k) may use of the machine."""
        ...

    @property
    def usual_dims(self) -> Mapping[str, int]:
        """Default sizes of symbolic dimensions."""
        return dict[str, int]()

    @property
    def memory(self) -> MemoryRules:
        """Constraints on the arena."""
        return DEFAULT_RULES

    @property
    def has_tf32(self) -> bool:
        """Whether it supports :data:`TF32` and :data:`TF32X3`."""
        return False

    def for_linking(self) -> Self:
        """The same for code that others link, into processes that request nothing of the system."""
        return self

    def graph_passes(self) -> GraphPasses:
        """Its passes over graphs; none by default, as for accelerators with plain tensors."""
        ...

    def tensor_passes(self) -> TensorPasses:
        """Its passes over tensor programs: algorithms and layouts that pay on this machine."""
        ...

    def program_passes(self) -> tuple[Callable[[Program], Program], ...]:
        """Its passes over programs with ordered steps, before memory planning."""
        return ()

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Lowers kernels to loop functions, each passed to ``on_function`` as soon as it is
        complete; constants are packed for them."""
        ...

    def list_schedules(self, program: TensorProgram) -> str:
        """The schedule of each distinct kernel, as an editable text; only if :attr:`forms` has
        ``schedule``."""
        ...

    def legalize(self, function: Function) -> Function:
        """Lowers a loop function to the constructs that the target's emitter prints."""
        ...

    def emit(self, program: Program) -> tuple[Module, ...]:
        """Source modules of a program: its functions and the entry point."""
        ...

    def complete(self, program: Program) -> str:
        """Everything but the weights in one source text, to read or to deliver."""
        ...

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """Source modules of functions, without an entry point."""
        ...

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """Object files of ``modules``, in their order."""
        ...

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """``modules`` in one of :attr:`forms`."""
        ...

    def device_facts(self, program: Program, objects: Sequence[bytes] = ()) -> DeviceFacts | None:
        """Resources that a program's kernels use of a device, from its ``objects`` if these are
        built; None for targets other than devices."""
        return None

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """The finished artifact; ``notes`` are texts to include, by name."""
        ...

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact, loaded into this process, to run on ``threads`` threads."""
        ...

    def build_context(
        self, config: BuildConfig, early: bool = True
    ) -> AbstractContextManager[BuildContext]:
        """The context of one compilation in ``config``; in the background if ``early`` and
        supported."""
        return nullcontext(in_order(self, config))


@dataclass(frozen=True)
class BuildContext:
    """Callbacks that compile one program to an artifact: the target's own functions, or
    equivalents.

    ``scheduling`` receives the program before it is scheduled, and ``scheduled`` each function as
    soon as it is complete, for work in the background.
    """

    legalize: Callable[[Function], Function]
    emit: Callable[[Program], tuple[Module, ...]]
    build: Callable[[Sequence[Module]], tuple[bytes, ...]]
    package: Callable[[Program, Sequence[bytes], Mapping[str, str]], Artifact]
    scheduling: Callable[[TensorProgram], None] = lambda program: None
    scheduled: OnFunction = lambda function: None


def in_order(target: Target, config: BuildConfig) -> BuildContext:
    """The context in which stages run one after the other."""
    build = partial(target.build, config=config)
    return BuildContext(target.legalize, target.emit, build, target.package)
