"""What the runtime needs to know about a compiled model, apart from code and weights.

The compiled entry point is

    int32 ENTRY(ptr inputs, ptr outputs, ptr constants, ptr arena, ptr sizes, ptr pool)

``inputs``, ``outputs`` and ``constants`` are arrays of addresses in the manifest's order, at
least as aligned as one element (constants: 64 bytes); ``arena`` is scratch memory aligned to 64
bytes; ``sizes`` is the array of int64 values of ``dims``; ``pool`` is a thread pool or null.  It
returns 0, or the number (from 1) of the entry of ``checks``, then ``indices``, that says why it
stopped.  If an index was not within its bound, it is in the first 8 bytes of the arena then.

Outputs that ``aliases`` names are where an input is, which the code changes; their own address is
not looked at.  A run that fails leaves these inputs as they were.

A model with ``sizes`` that depend on data writes them behind the values of ``dims``.  One with
``allocated`` memory takes another ``ptr host``: it points to the function
``ptr allocate(ptr context, int64 which, int64 bytes)`` and to its context, and is called for each
of ``allocated`` before that is used; with null the run ends with -1.
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
"""Version of manifest, file and calling convention; raised whenever an old reader would fail."""

ALIGNMENT = 64
"""Bytes; the arena and every constant start at a multiple of it."""


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
    """Where a constant lies: ``offset`` and ``size`` in bytes in the block of constants.

    ``sha256`` is that of its bytes, in hexadecimal.  Equal constants may share their place.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True)
class CheckSpec:
    """What must hold of sizes, or the run ends; ``where`` names the user's nodes."""

    where: str
    condition: Condition

    def __str__(self) -> str:
        return f"{self.where}: {self.condition}" if self.where else str(self.condition)


@dataclass(frozen=True)
class MachineSpec:
    """The processor that the code is for: LLVM triple, processor and features with their sign.

    ``origin`` identifies the machine that has all of these, if it was compiled for such a one.
    """

    triple: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class LibrarySpec:
    """A library that the code calls, as ``version`` (the one it was compiled with).

    It is looked for as ``files``, in this order: an absolute path, ``PACKAGE/PATH`` of an installed
    Python package, or a name that the system's loader knows.  ``symbols`` are what the code calls;
    the library may call them with one of ``prefixes`` before.  ``setup`` are functions of it, each
    with its argument, to call once.  ``package`` is what brings it to a machine that lacks it.
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
    that were used, both for the reader only.  ``interface`` puts inputs and outputs together to
    what the caller sees (None: as they are).  ``aliases`` are outputs, each with the input whose
    memory it takes: the model's states.
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
        """What is kept from call to call."""
        return states_of(self.interface)

    def with_interface(self, interface: Interface) -> Manifest:
        """This one for callers that see ``interface``; tensors of texts are called so."""

        def seen(spec: TensorSpec) -> TensorSpec:
            return replace(spec, dtype=STRING) if spec.name in interface.strings else spec

        inputs, outputs = (tuple(map(seen, side)) for side in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs, interface=interface)
