"""Handler of TfIdfVectorizer: how often each n-gram of a pool occurs in each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.types import F32, I32, I64, STRING, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import Gather
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.shape import Concat, Full, Reshape
from modelcc.ops.slicing import Slice


@dataclass(frozen=True)
class _Pool:
    """N-grams of one length, [count, length], and the column of the result of each."""

    grams: Array
    columns: tuple[int, ...]


def vectorizer(call: Call) -> str:
    """Row by row; a vector is one row, and so is its result."""
    if call.dtype() not in (I32, I64, STRING):
        unsupported(f"elements of type {call.dtype()}")
    x, single = value_of(call), call.rank() == 1
    width = x.type.shape[1]
    if not isinstance(width, int):
        unsupported(f"how many n-grams there are depends on dimension {width}; fix it with dims")
    columns = call.attrs.integers("ngram_indexes")
    counts, order = _counts(call, x, width)
    size = max(columns) + 1
    place = np.full(size, len(order), np.int64)
    place[list(order)] = np.arange(len(order))
    found = of(Gather(1), counts, call.literal(place))
    result = _weighted(call, found)
    return (of(Reshape((size,)), result) if single else result).name


def value_of(call: Call) -> Value:
    x = call.value(0)
    return of(Reshape((1, *call.shape())), x) if call.rank() == 1 else x


def _counts(call: Call, x: Value, width: int) -> tuple[Value, tuple[int, ...]]:
    """Counts of all n-grams, and a column of zeros; the result's columns they belong to."""
    attrs = call.attrs
    parts: list[Value] = []
    order: list[int] = []
    for pool in _pools(call):
        length = pool.grams.shape[1]
        if not attrs.integer("min_gram_length") <= length <= attrs.integer("max_gram_length"):
            continue
        skips = range(1 if length == 1 else attrs.integer("max_skip_count") + 1)
        found = [
            _occurrences(call, x, pool, s + 1) for s in skips if (length - 1) * (s + 1) < width
        ]
        if found:
            parts.append(sum(found[1:], start=found[0]))
            order += pool.columns
    nothing = call.made(Full((x.type.shape[0], 1), 0.0, F32))
    return (of(Concat(1), *parts, nothing) if parts else nothing), tuple(order)


def _pools(call: Call) -> Iterator[_Pool]:
    """The pool in order of length; attribute ``ngram_counts`` has the start of each length."""
    attrs = call.attrs
    items: Array = (
        np.array(attrs.texts("pool_strings"), object)
        if call.dtype() == STRING
        else np.array(attrs.integers("pool_int64s"), call.dtype().numpy)
    )
    starts = (*attrs.integers("ngram_counts"), len(items))
    columns, used = attrs.integers("ngram_indexes"), 0
    for length, (start, end) in enumerate(pairwise(starts), 1):
        count = (end - start) // length
        if count:
            grams = items[start : start + count * length].reshape(count, length)
            yield _Pool(grams, columns[used : used + count])
        used += count


def _occurrences(call: Call, x: Value, pool: _Pool, step: int) -> Value:
    """The number of occurrences of each n-gram with skip distance ``step``, [rows, count]."""
    rows, width = x.type.shape
    length = pool.grams.shape[1]
    places = width - (length - 1) * step
    met: Value | None = None
    for k in range(length):
        part = of(Slice((0, k * step), (rows, places), (1, 1)), x)
        wanted = call.literal(np.ascontiguousarray(pool.grams[:, k]))
        same = of(ew.Equal(), of(Reshape((rows, places, 1)), part), wanted)
        met = same if met is None else of(ew.And(), met, same)
    assert met is not None
    return of(ReduceSum((1,), False), of(ew.Cast(F32), met))


def _weighted(call: Call, counts: Value) -> Value:
    """Counts (TF), weights of occurring n-grams (IDF), or their product."""
    mode = call.option("mode", ("TF", "IDF", "TFIDF"))
    if mode == "TF" or not call.attrs.has("weights"):
        return _occurs(counts) if mode == "IDF" else counts
    of_columns = np.zeros(max(call.attrs.integers("ngram_indexes")) + 1, np.float32)
    of_columns[list(call.attrs.integers("ngram_indexes"))] = call.attrs.numbers("weights")
    weights = call.literal(of_columns)
    return (_occurs(counts) if mode == "IDF" else counts) * weights


def _occurs(counts: Value) -> Value:
    return of(ew.Cast(F32), of(ew.Greater(), counts, counts.lift(0.0)))


TFIDF = table(TfIdfVectorizer=vectorizer)
