"""Choices for a model as a whole in a database, keyed by the model's contents.

In a database they are called ``model KEY channels``, in a file of schedules ``model channels``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from modelcc.schedule.listing import MODEL
from modelcc.schedule.workload import DIGITS


def model_key(model: object, sizes: Iterable[tuple[str, object]] = ()) -> str:
    """The first digits of the SHA-256 of a model and the ``sizes`` of its dimensions; empty for
    models that cannot be serialised, for which nothing is stored."""
    match model:
        case str() | Path() if Path(model).is_file():
            with Path(model).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        case bytes():
            content = hashlib.sha256(model).digest()
        case _:
            serialise = getattr(model, "SerializeToString", None)
            if serialise is None:
                return ""
            content = hashlib.sha256(serialise(deterministic=True)).digest()
    return hashlib.sha256(content + repr(sorted(map(str, sizes))).encode()).hexdigest()[:DIGITS]


def of_models(rows: Mapping[str, str]) -> bool:
    """Whether any of the rows is for a model as a whole."""
    return any(name.startswith(MODEL) for name in rows)


def rows_for(rows: Mapping[str, str], key: str) -> Mapping[str, str]:
    """``rows`` renamed for the model with that key, without those of other models."""
    own = f"{MODEL}{key} "
    found = {name: text for name, text in rows.items() if not name.startswith(MODEL)}
    named = {n.removeprefix(own): text for n, text in rows.items() if key and n.startswith(own)}
    return {**found, **{f"{MODEL}{name}": text for name, text in named.items()}}


def rows_of(lines: Mapping[str, str], key: str) -> dict[str, str]:
    """Lines above kernels as rows of a database; without a key, none for the model."""
    own = f"{MODEL}{key} "
    return {
        own + name.removeprefix(MODEL) if name.startswith(MODEL) else name: text
        for name, text in lines.items()
        if key or not name.startswith(MODEL)
    }
