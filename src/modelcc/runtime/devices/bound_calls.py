"""Calls bound to memory at addresses that the caller gives, some of them on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod

from modelcc.artifact.manifest import Manifest
from modelcc.ir.types import NumpyType
from modelcc.runtime.devices.device_steps import End
from modelcc.runtime.devices.graph_replay import Places
from modelcc.runtime.errors import RunError
from modelcc.runtime.signature import Shape, Signature
from modelcc.runtime.slot import aliased_positions


@dataclass(frozen=True)
class KnownCall:
    """An asynchronous call for inputs of some shapes: its numbers, shape, type and size of each
    output, and a function for the error of a status and an index that ended it."""

    numbers: tuple[int, ...]
    outputs: tuple[tuple[Shape, NumpyType, int], ...]
    failure: Callable[[int, int], RunError]


class BoundCall:
    """Calls of a ``signature`` whose ``ends`` (inputs, outputs), with bytes, are on the device."""

    def __init__(
        self,
        signature: Signature,
        ends: Mapping[End, int],
        elsewhere: AbstractSet[End],
        inputs: int,
    ) -> None:
        """For a program with this number of ``inputs``; those ``elsewhere`` are on the host."""
        self.signature, self.elsewhere = signature, elsewhere
        self.ends = tuple(
            (number + (inputs if kind == "output" else 0), (kind, number), size)
            for (kind, number), size in ends.items()
        )
        self._positions = frozenset(position for position, *_ in self.ends)
        self.known: KnownCall | None = None
        """The cached call, once it can be asynchronous."""

    def places(self, inputs: Sequence[int], outputs: Sequence[int]) -> Places:
        """Addresses of all inputs and outputs, 0 for those elsewhere."""
        addresses = (*inputs, *outputs)
        if len(self._positions) == len(addresses):
            return addresses
        return tuple(a if n in self._positions else 0 for n, a in enumerate(addresses))


def bound_call(manifest: Manifest, signature: Signature, there: AbstractSet[End]) -> BoundCall:
    """A call with the inputs and outputs ``there`` in the device's memory, if they have elements;
    an output that aliases an input counts as this."""
    sizes: dict[End, int] = {}
    for kind, specs, shapes in (
        ("input", manifest.inputs, signature.inputs),
        ("output", manifest.outputs, signature.outputs),
    ):
        for number, (spec, shape) in enumerate(zip(specs, shapes, strict=True)):
            sizes[kind, number] = spec.dtype.numpy.itemsize * prod(shape)
    over = {("output", number) for number in aliased_positions(manifest)}
    filled = {end for end, size in sizes.items() if size} - over
    ends = {end: size for end, size in sizes.items() if end in filled & there}
    return BoundCall(signature, ends, filled - there, len(manifest.inputs))
