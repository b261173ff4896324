"""Work on texts, which compiled code cannot look into: done here, before it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.ir.types import DTYPES, Array
from modelcc.runtime.full_match import Automaton, Matcher
from modelcc.runtime.text_numbers import numbers

Settings = Mapping[str, Any]
Function = Callable[[Sequence[Array], Settings], tuple[Array, ...]]


def _on_texts(function: Function) -> Callable[[Sequence[object], Settings], tuple[Array, ...]]:
    """``function`` of operands that the caller gave; ValueError for one that is no text."""

    def run(operands: Sequence[object], settings: Settings) -> tuple[Array, ...]:
        return function([as_texts(operand) for operand in operands], settings)

    return run


def as_texts(value: object) -> Array:
    """``value`` as an array of ``str``; ValueError if it is none."""
    array = np.asarray(value)
    if array.dtype.kind not in "OUT":
        raise ValueError(f"it is of {array.dtype}; give an array of str")
    flat = [t.decode() if isinstance(t, bytes) else str(t) for t in array.reshape(-1).tolist()]
    return _objects(flat, array.shape)


def _objects(texts: Sequence[str], shape: Sequence[int]) -> Array:
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(tuple(shape))


def literal(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """The texts of the settings."""
    return (_objects(settings["texts"], settings["shape"]),)


def concat(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Texts of both operands, broadcast, one after the other."""
    first, second = np.broadcast_arrays(*operands)
    pairs = zip(first.reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True)
    return (_objects([a + b for a, b in pairs], first.shape),)


def split(operands: Sequence[Array], settings: Settings) -> tuple[Array, Array]:
    """Parts of each text along a new last axis, filled up with empty ones, and their numbers."""
    (x,), most = operands, settings["maxsplit"]
    parts = [text.split(settings["delimiter"] or None, most) for text in x.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    flat = [text for row in parts for text in (*row, *[""] * (width - len(row)))]
    counts = np.array([len(row) for row in parts], np.int64)
    return _objects(flat, (*x.shape, width)), counts.reshape(x.shape)


def normalize(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Without stop words, in upper or lower case; one empty text if nothing is left."""
    (x,), words, case = operands, settings["stopwords"], settings["case"]
    exact = settings["is_case_sensitive"]
    stops = set(words) if exact else {word.lower() for word in words}
    kept = [t for t in x.reshape(-1).tolist() if (t if exact else t.lower()) not in stops]
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case, str)
    texts = [change(text) for text in kept] or [""]
    return (_objects(texts, (*x.shape[:-1], len(texts))),)


def full_match(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Whether all of each text matches a regular expression."""
    (x,) = operands
    matcher = Matcher(Automaton(**settings))
    found = [matcher.matches(text) for text in x.reshape(-1).tolist()]
    return (np.array(found, bool).reshape(x.shape),)


def to_numbers(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """The numbers that texts spell; ValueError for one that spells none."""
    (x,) = operands
    return (numbers(x.reshape(-1).tolist(), DTYPES[settings["dtype"]]).reshape(x.shape),)


_FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "literal": literal,
        "concat": concat,
        "split": split,
        "normalize": normalize,
        "full_match": full_match,
        "to_numbers": to_numbers,
    }
)

TEXT_FUNCTIONS = MappingProxyType({name: _on_texts(f) for name, f in _FUNCTIONS.items()})
