"""Kernels for WebGPU as an artifact holds them: shaders in WGSL, each after a line that tells what
it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from modelcc.ir.index import Index, parse_index

GROUPS_ACROSS = 65535
"""Groups that a launch may have in one dimension; further ones are further rows."""

Shared = tuple[tuple[int, ...], ...]
"""Parameters of a launch by their numbers, those that are one memory together."""

_LINE = re.compile(r"^// ---- (\{.*\})\n", re.MULTILINE)


@dataclass(frozen=True)
class Shader:
    """A kernel's text.  ``bindings`` are the parameters of each buffer that it takes, which have so
    many ``elements`` (expressions of its ``sizes``) of so many bytes (``widths``).  Then come
    ``faults`` words for its checks, and its sizes, if there are any.  ``grid`` is how many groups
    run."""

    name: str
    bindings: Shared
    sizes: tuple[str, ...]
    elements: tuple[Index, ...]
    widths: tuple[int, ...]
    grid: tuple[Index, ...]
    faults: int
    text: str = field(repr=False)


def together(places: Sequence[object]) -> Shared:
    """Which of a launch's arguments are at the same of ``places``."""
    found: dict[object, list[int]] = {}
    for number, place in enumerate(places):
        found.setdefault(place, []).append(number)
    return tuple(map(tuple, found.values()))


def shaders_text(shaders: Sequence[Shader]) -> str:
    """All of them in one text."""
    return "".join(f"// ---- {_facts(shader)}\n{shader.text}" for shader in shaders)


def read_shaders(text: str) -> tuple[Shader, ...]:
    """What :func:`shaders_text` has written; ``ValueError`` or ``LookupError`` if it has not."""
    _, *parts = _LINE.split(text)
    return tuple(_shader(facts, own) for facts, own in zip(parts[::2], parts[1::2], strict=True))


def _facts(shader: Shader) -> str:
    facts = {
        "name": shader.name,
        "bindings": shader.bindings,
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
        tuple(found["sizes"]),
        tuple(map(parse_index, found["elements"])),
        tuple(found["widths"]),
        tuple(map(parse_index, found["grid"])),
        found["faults"],
        text,
    )
