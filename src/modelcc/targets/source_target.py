"""Targets that emit source text for other tools: nothing of them runs on this machine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from modelcc.artifact.file import Artifact
from modelcc.ir.capacity import SCALAR, Capacity
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.runtime.session import Session
from modelcc.targets.base import (
    BuildConfig,
    GraphPasses,
    Module,
    Target,
    TargetOptions,
    TensorPasses,
    joined,
)


@dataclass(frozen=True)
class SourceTarget(Target):
    """Plain tensors, without rewrites of its own; ``options`` are the user's."""

    options: TargetOptions

    @property
    @abstractmethod
    def elsewhere(self) -> str:
        """The tool that builds and runs the text."""

    @property
    def key(self) -> str:
        return repr(self)

    @property
    def capacity(self) -> Capacity:
        """Scalar code."""
        return SCALAR

    def graph_passes(self) -> GraphPasses:
        """None."""
        return GraphPasses()

    def tensor_passes(self) -> TensorPasses:
        """None."""
        return TensorPasses()

    def legalize(self, function: Function) -> Function:
        """Unchanged: printing expands what it has to."""
        return function

    def list_schedules(self, program: TensorProgram) -> str:
        """:class:`ModelError`: there are no schedules."""
        self._refuse()

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """Raises :class:`ModelError`: other tools do."""
        self._refuse()

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """The texts, concatenated."""
        return joined(modules, [module.text for module in modules])

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """Raises :class:`ModelError`: there is no artifact."""
        self._refuse()

    def load(self, artifact: Artifact, threads: int) -> Session:
        """Raises :class:`ModelError`: nothing runs here."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        message = f"target {self.name!r} writes source text and makes no compiled model"
        hint = f"--emit {self.forms[0]} writes it; {self.elsewhere}"
        raise ModelError(message, (), hint)
