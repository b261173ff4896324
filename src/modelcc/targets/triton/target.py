"""Triton as a target that writes Python source, from the tensor level on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.library import Callee
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.targets.base import Module, OnFunction, TargetOptions, TensorPasses
from modelcc.targets.source_target import SourceTarget

_ROWS = 64
_SCORES = 1 << 20
"""Rows of a block of attention, and bytes of its scores."""


@dataclass(frozen=True)
class TritonTarget(SourceTarget):
    """Block programs, whose loops and memory Triton chooses."""

    @property
    def name(self) -> str:
        return "triton"

    @property
    def description(self) -> str:
        """The description for ``modelcc targets``."""
        return "GPUs that Triton compiles for: kernels and what launches them as Python source"

    @property
    def forms(self) -> tuple[str, ...]:
        return ("triton",)

    @property
    def elsewhere(self) -> str:
        """What builds the text."""
        return "torch and triton run it"

    def tensor_passes(self) -> TensorPasses:
        """Attention as one kernel, even with few rows."""
        return TensorPasses(kernels=(FuseContractions(_ROWS, _SCORES, rows=1, share=1 << 20),))

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """:class:`ModelError`: there are no loops."""
        self._refuse()

    def emit(self, program: Program) -> tuple[Module, ...]:
        """:class:`ModelError`: there are no loops."""
        self._refuse()

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """:class:`ModelError`: there are no loops."""
        self._refuse()

    def complete(self, program: Program) -> str:
        """:class:`ModelError`: there are no loops."""
        self._refuse()


def triton_target(options: TargetOptions) -> TritonTarget:
    """The target for ``options``."""
    return TritonTarget(options)
