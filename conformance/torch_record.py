"""Outcomes of samples in a line-based file, to resume from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.torch_database import Outcome


def read(record: Path | None, gradients: bool) -> list[Outcome]:
    """The outcomes of one half."""
    if record is None or not record.exists():
        return []
    lines = map(json.loads, record.read_text("utf-8").splitlines())
    return [Outcome(entry, i, reason) for half, entry, i, reason in lines if half == gradients]


def kept(found: Iterable[Outcome], record: Path | None, gradients: bool) -> Iterator[Outcome]:
    """Yields ``found``, each stored as soon as it is available."""
    for one in found:
        if record is not None:
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps([gradients, one.entry, one.index, one.reason]) + "\n")
        yield one
