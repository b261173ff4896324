"""The runtime's description of a compiled model, apart from code and weights.

The compiled entry point is

    int32 ENTRY(ptr inputs, ptr outputs, ptr constants, ptr arena, ptr sizes, ptr pool)

``inputs``, ``outputs`` and ``constants`` are arrays of addresses in the manifest's order, at
least as aligned as one element (constants: 64 bytes); ``arena`` is scratch memory aligned to 64
bytes; ``sizes`` is the array of int64 values of ``dims``; ``pool`` is a thread pool or null.  It
returns 0, or the number (from 1) of the entry of ``checks``, then ``indices``, that failed.  If an
index was out of bounds, its value is in the first 8 bytes of the arena.

Outputs in ``aliases`` share the memory of an input, which the code updates; their own address is
ignored.  A run that fails leaves these inputs unchanged.

A model with data-dependent ``sizes`` writes them after the values of ``dims``.  One with
``allocated`` memory takes another ``ptr host``: it points to the function
``ptr allocate(ptr context, int64 which, int64 bytes)`` and to its context, and is called for each
of ``allocated`` before its first use; if it returns null the run ends with -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.structure import Interface, ModelState, states_of
from modelcc.ir.types import STRING, DType

FORMAT = 3
"""Version of manifest, file and calling convention; incremented for incompatible changes."""

ALIGNMENT = 64
"""Alignment of the arena and of every constant, in bytes."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: the user's name for it, element type, extents; in row-major order."""

    name: str
    dtype: DType
    shape: tuple[Index, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class DimSpec:
    """A named dimension with its inclusive bounds (``high`` None: unbounded)."""

    name: str
    low: int = 1
    high: int | None = None


@dataclass(frozen=True)
class ConstantSpec:
    """Location of a constant: ``offset`` and ``size`` in bytes in the block of constants.

    ``sha256`` is that of its bytes, in hexadecimal.  Equal constants may share memory.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True)
class CheckSpec:
    """A condition on sizes, whose failure ends the run; ``where`` names the user's nodes."""

    where: str
    condition: Condition

    def __str__(self) -> str:
        return f"{self.where}: {self.condition}" if self.where else str(self.condition)


@dataclass(frozen=True)
class MachineSpec:
    """The processor that the code is for: LLVM triple, processor and features with their sign.

    ``origin`` identifies the machine with all of these, if it was compiled for one.
    """

    triple: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class LibrarySpec:
    """A library that the code calls, as ``version`` (the one it was compiled with).

    It is searched for as ``files``, in this order: an absolute path, ``PACKAGE/PATH`` of an
    installed Python package, or a name for the system's loader.  ``symbols`` are the functions that
    the code calls; the library may prefix them with one of ``prefixes``.  ``setup`` are functions
    to call once, each with its argument.  ``package`` is the package to install if it is missing.
    """

    name: str
    files: tuple[str, ...]
    prefixes: tuple[str, ...] = ("",)
    symbols: tuple[str, ...] = ()
    setup: tuple[tuple[str, int], ...] = ()
    package: str = ""
    version: str = ""


@dataclass(frozen=True)
class Manifest:
    """A compiled model's interface.

    ``arena`` is in bytes, ``definitions`` are evaluated in order; all are in terms of ``dims``
    and earlier definitions.  ``options`` identifies the compiler options, ``versions`` the tools
    that were used, both for information only.  ``interface`` maps inputs and outputs to the
    caller's view (None: as they are).  ``aliases`` are outputs, each with the input whose memory it
    takes: the model's states.
    """

    name: str
    entry: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    machine: MachineSpec
    dims: tuple[DimSpec, ...] = ()
    definitions: tuple[tuple[str, Index], ...] = ()
    arena: Index = 0
    constants: tuple[ConstantSpec, ...] = ()
    objects: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    checks: tuple[CheckSpec, ...] = ()
    allocated: tuple[str, ...] = ()
    indices: tuple[IndexBound, ...] = ()
    libraries: tuple[LibrarySpec, ...] = ()
    options: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    interface: Interface | None = None
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    format: int = FORMAT

    @property
    def states(self) -> Mapping[str, ModelState]:
        """The states that are kept between calls."""
        return states_of(self.interface)

    def with_interface(self, interface: Interface) -> Manifest:
        """The manifest with ``interface``; string tensors have that type."""

        def seen(spec: TensorSpec) -> TensorSpec:
            return replace(spec, dtype=STRING) if spec.name in interface.strings else spec

        inputs, outputs = (tuple(map(seen, side)) for side in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs, interface=interface)
