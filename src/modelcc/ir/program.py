"""Program level: the host program — an arena with planned offsets, and steps.

Sizes and offsets are index expressions of the model's named dimensions (and of earlier
``definitions``), evaluated once per call signature.

    program @model(%x: f32[batch, 784]) -> (%y: f32[batch, 10]) {
      constant %w : f32[784, 512] digest 3f…
      arena 64-aligned, size = a0 + 2048*batch
      region %h = arena[0 .. 2048*batch]
      launch @gemm_bias_relu(%x, %w, %b, %h; batch) from "fc1"
    }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from modelcc.ir.graph import Constant
from modelcc.ir.index import Bounds, Index, Range
from modelcc.ir.loop import Function
from modelcc.ir.types import TensorType

Place = Literal["input", "output", "constant", "arena"]


@dataclass(frozen=True)
class Binding:
    """Where a named tensor lives.  ``offset`` is in bytes, into the arena; 0 elsewhere."""

    name: str
    type: TensorType
    place: Place
    offset: Index = 0


@dataclass(frozen=True)
class Definition:
    """Names an index expression evaluated before the steps (offsets of symbolic arenas)."""

    symbol: str
    value: Index


@dataclass(frozen=True)
class Launch:
    """Runs kernel ``function`` on tensors, in parameter order, and index arguments."""

    function: str
    arguments: tuple[str, ...]
    sizes: tuple[Index, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class CopyTensor:
    """Copies a tensor's buffer byte by byte (a graph output that is also an input, say)."""

    target: str
    source_tensor: str
    source: tuple[str, ...] = ()


Step: TypeAlias = Launch | CopyTensor


@dataclass(frozen=True)
class Program:
    """The whole compiled model: what the runtime executes and the emitters print.

    ``bindings`` names every tensor a step mentions; views share place and offset with their base.
    ``arena`` is the arena's size in bytes.  Every binding starts at a multiple of 64 bytes.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bindings: Mapping[str, Binding]
    functions: tuple[Function, ...]
    steps: tuple[Step, ...]
    arena: Index
    definitions: tuple[Definition, ...] = ()
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])
