"""Memory of the tensors of a compiled graph, and running it on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch._C._dynamo.guards import _empty_strided_cpu as empty_strided_cpu

from modelcc.frontends.torch.traced import TracedInterface
from modelcc.runtime.arenas import Arenas
from modelcc.runtime.devices.bound_calls import BoundCall
from modelcc.runtime.devices.device_steps import End
from modelcc.runtime.session import Session
from modelcc.runtime.signature import Signature

Shape = tuple[int, ...]

Empty = Callable[[Shape, Shape, torch.dtype], Any]
"""Allocates a tensor of given extents, strides and dtype."""


class TensorMemory(Protocol):
    """Memory of the inputs and outputs of one graph."""

    def outputs(self) -> Sequence[Empty]:
        """Allocators of the outputs."""
        ...

    def prepared(self, signature: Signature) -> Any:
        """What :meth:`run` needs for calls of ``signature``."""
        ...

    def run(self, prepared: Any, inputs: list[int], outputs: list[int]) -> None:
        """A call on memory at these addresses."""


@dataclass(frozen=True)
class HostMemory:
    """All in host memory; each call takes one of the ``arenas``."""

    interface: TracedInterface
    session: Session
    arenas: Arenas

    def outputs(self) -> Sequence[Empty]:
        return [empty_strided_cpu] * len(self.interface.outputs)

    def prepared(self, signature: Signature) -> Signature:
        return signature

    def run(self, prepared: Signature, inputs: list[int], outputs: list[int]) -> None:
        arena = self.arenas.taken(prepared.arena)
        try:
            self.session.run_at(prepared, inputs, outputs, arena)
        finally:
            self.arenas.given(arena)


@dataclass(frozen=True)
class GpuMemory:
    """On a GPU except for those that the ``interface`` places on the host.

    ``stream`` is PyTorch's current stream, and ``empty`` allocates tensors there.
    """

    interface: TracedInterface
    session: Session
    stream: Callable[[], int]
    empty: Empty
    there: frozenset[End] = field(init=False)

    def __post_init__(self) -> None:
        inputs = {("input", n) for n, i in enumerate(self.interface.inputs) if not i.host}
        outputs = {("output", n) for n, o in enumerate(self.interface.outputs) if not o.host}
        object.__setattr__(self, "there", frozenset(inputs | outputs))

    def outputs(self) -> Sequence[Empty]:
        return [empty_strided_cpu if o.host else self.empty for o in self.interface.outputs]

    def prepared(self, signature: Signature) -> BoundCall:
        return self.session.placed(signature, self.there)

    def run(self, prepared: BoundCall, inputs: list[int], outputs: list[int]) -> None:
        self.session.run_bound(prepared, inputs, outputs, self.stream())


def gpu_memory(interface: TracedInterface, session: Session, device: torch.device) -> GpuMemory:
    """Tensors on ``device``, run in PyTorch's current streams."""

    def stream() -> int:
        return torch.cuda.current_stream(device).cuda_stream

    def empty(shape: Shape, strides: Shape, dtype: torch.dtype) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return GpuMemory(interface, session, stream, empty)
