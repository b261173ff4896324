"""Kernels for WebGPU as artifacts store them: shaders in WGSL, each after a line with its
interface."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modelcc.ir.index import Index, evaluate, parse_index

GROUPS_ACROSS = 65535
"""Groups of a launch in one dimension; more are further rows."""

Shared = tuple[tuple[int, ...], ...]
"""Parameters of a launch by their numbers, grouped by the memory that they share."""

_LINE = re.compile(r"^// ---- (\{.*\})\n", re.MULTILINE)


@dataclass(frozen=True)
class Shader:
    """A kernel's text.  ``bindings`` are the parameters of each memory that it binds, which have
    ``elements`` elements (expressions of its ``sizes``) of ``widths`` bytes.  A memory is bound as
    ``pieces`` buffers, all but the last one of ``piece_bytes``.  Then come ``faults`` words for its
    checks, and its sizes, if there are any.  ``grid`` is the number of groups."""

    name: str
    bindings: Shared
    pieces: tuple[int, ...]
    piece_bytes: int
    sizes: tuple[str, ...]
    elements: tuple[Index, ...]
    widths: tuple[int, ...]
    grid: tuple[Index, ...]
    faults: int
    text: str = field(repr=False)

    @property
    def buffers(self) -> int:
        """The number of its buffers."""
        return sum(self.pieces) + bool(self.faults)

    def spans(self, env: Mapping[str, int]) -> Iterator[BoundPart]:
        """The part of the arguments' memory in each buffer at these sizes, without faults."""
        sizes = self.bytes(env)
        for places, pieces in zip(self.bindings, self.pieces, strict=True):
            largest = max(places, key=sizes.__getitem__)
            for number in range(pieces - 1):
                yield BoundPart(largest, number * self.piece_bytes, self.piece_bytes)
            start = (pieces - 1) * self.piece_bytes
            yield BoundPart(largest, start, sizes[largest] - start)

    def bytes(self, env: Mapping[str, int]) -> list[int]:
        """The size of each argument, without faults."""
        return [evaluate(e, env) * w for e, w in zip(self.elements, self.widths, strict=True)]

    def fits(self, places: Sequence[object], env: Mapping[str, int]) -> bool:
        """Whether arguments at these ``places`` share memory as the shader assumes.

        Empty ones have no place: whatever else begins there is other memory.
        """
        there = [n for n, size in enumerate(self.bytes(env)) if size]
        own = {n: group for group in self.bindings for n in group}
        return together([own[n] for n in there]) == together([places[n] for n in there])


@dataclass(frozen=True)
class BoundPart:
    """``size`` bytes of the memory of the argument ``parameter``, from byte ``start`` on."""

    parameter: int
    start: int
    size: int


def together(places: Sequence[object]) -> Shared:
    """The launch's arguments, grouped by equal ``places``."""
    found: dict[object, list[int]] = {}
    for number, place in enumerate(places):
        found.setdefault(place, []).append(number)
    return tuple(map(tuple, found.values()))


def shaders_text(shaders: Sequence[Shader]) -> str:
    """All of them in one text."""
    return "".join(f"// ---- {_facts(shader)}\n{shader.text}" for shader in shaders)


def read_shaders(text: str) -> tuple[Shader, ...]:
    """The inverse of :func:`shaders_text`; ``ValueError`` or ``LookupError`` for other texts."""
    _, *parts = _LINE.split(text)
    return tuple(_shader(facts, own) for facts, own in zip(parts[::2], parts[1::2], strict=True))


def _facts(shader: Shader) -> str:
    facts = {
        "name": shader.name,
        "bindings": shader.bindings,
        "pieces": shader.pieces,
        "piece_bytes": shader.piece_bytes,
        "sizes": shader.sizes,
        "elements": list(map(str, shader.elements)),
        "widths": shader.widths,
        "grid": list(map(str, shader.grid)),
        "faults": shader.faults,
    }
    return json.dumps(facts)


def _shader(facts: str, text: str) -> Shader:
    found = json.loads(facts)
    return Shader(
        found["name"],
        tuple(map(tuple, found["bindings"])),
        tuple(found["pieces"]),
        found["piece_bytes"],
        tuple(found["sizes"]),
        tuple(map(parse_index, found["elements"])),
        tuple(found["widths"]),
        tuple(map(parse_index, found["grid"])),
        found["faults"],
        text,
    )
