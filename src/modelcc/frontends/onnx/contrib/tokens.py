"""Handlers of onnxruntime's operators on tokens and words (com.microsoft)."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.kit.selection import different
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.ir.index import Index
from modelcc.ir.types import F32, I32, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.gather import Gather
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.generate import Full, Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax, ReduceMin, ReduceSum
from modelcc.ops.shape import Concat
from modelcc.ops.views import cast, part, permuted, reshaped


def no_repeated_grams(call: Call, tokens: Value, scores: Value) -> Value:
    """Scores [batch, words], minus infinity for words that would repeat an n-gram."""
    size = call.attrs.integer("ngram_size")
    length = tokens.type.shape[1]
    runs = length - size + 1
    same: Value | None = None
    for i in range(size - 1):
        last = part(tokens, 1, length - size + 1 + i, 1)
        equal = of(ew.Equal(), part(tokens, 1, i, runs), last)
        same = equal if same is None else of(ew.And(), same, equal)
    followers = part(tokens, 1, size - 1, runs)
    if same is None:
        same = of(ew.Equal(), followers, followers)
    nothing = call.made(Full(scores.type.shape, 0, I32))
    found = of(ScatterElements(1, "max"), nothing, followers, cast(same, I32))
    barred = of(ew.Greater(), found, found.lift(0))
    return where(barred, scores.lift(-np.inf), scores)


def hashed_grams(
    call: Call, ids: Value, multipliers: Value, sizes: Value, past: Value | None,
    offsets: Value | None, end: Value | None, segments: Value | None,
) -> tuple[Value, Value]:  # fmt: skip
    """Hashes of the last tokens at each position, per n-gram length and head."""
    attrs = call.attrs
    longest, heads = attrs.integer("max_ngram_size"), attrs.integer("n_head_per_ngram")
    batch, length = ids.type.shape
    ends = None if end is None else reshaped(end, 1, 1)
    dtype = ids.type.dtype
    if past is not None:
        before = past
    elif ends is not None:
        before = ends + call.made(Full((batch, longest - 1), 0, dtype))
    else:
        before = call.made(Full((batch, longest - 1), attrs.integer("pad_id"), dtype))
    seen = of(Concat(1), before, ids)
    first = _first_of_history(call, seen, ends, segments, longest)
    mixed = ids * part(multipliers, 0, 0, 1)
    results: list[Value] = []
    for n in range(1, longest):
        shifted = part(seen, 1, longest - 1 - n, length)
        if first is not None and ends is not None:
            places = call.made(Iota((1, length), 1, longest - 1 - n, 1, I64))
            shifted = where(of(ew.Less(), places, first), ends, shifted)
        mixed = of(ew.BitwiseXor(), mixed, shifted * part(multipliers, 0, n, 1))
        size = reshaped(part(sizes, 0, (n - 1) * heads, heads), 1, 1, heads)
        hashed = of(ew.Mod(False), reshaped(mixed, batch, length, 1), size)
        if offsets is not None:
            hashed = hashed + part(offsets, 0, (n - 1) * heads, heads)
        results.append(hashed)
    present = part(seen, 1, length, longest - 1)
    return of(Concat(2), *results), present


def _first_of_history(
    call: Call, seen: Value, ends: Value | None, segments: Value | None, longest: int
) -> Value | None:
    """The first index of ``seen`` that each position looks back to, [batch, length]."""
    resets = ends is not None and call.attrs.flag("reset_on_eos")
    if not resets and segments is None:
        return None
    batch, whole = seen.type.shape
    length = whole - (longest - 1)
    starts: list[Value] = []
    places = call.made(Iota((1, whole), 1, 0, 1, I64))
    if resets and ends is not None:
        ended = of(ew.Equal(), seen, ends)
        starts.append(_last(where(ended, places + 1, places.lift(0)), longest - 1, length))
    if segments is not None:
        changes = of(ew.NotEqual(), part(segments, 1, 1, length - 1),
                     part(segments, 1, 0, length - 1))  # fmt: skip
        own = call.made(Iota((1, length - 1), 1, longest, 1, I64))
        zero = call.made(Full((batch, 1), 0, I64))
        marks = of(Concat(1), zero, where(changes, own, own.lift(0)))
        starts.append(_running_max(marks, length))
    return starts[0] if len(starts) == 1 else of(ew.Max(), *starts)


def _last(marks: Value, before: int, length: Index) -> Value:
    """The maximum mark before each of the last ``length`` positions."""
    whole = marks.type.shape[1]
    return part(_running_max(marks, whole), 1, before - 1, length)


def _running_max(x: Value, length: Index) -> Value:
    """The prefix maximum of [batch, length]."""
    batch = x.type.shape[0]
    rows = Value(x.build, x.build.emit(Iota((1, length, 1), 1, 0, 1, I64)))
    columns = Value(x.build, x.build.emit(Iota((1, 1, length), 2, 0, 1, I64)))
    upto = of(ew.LessOrEqual(), columns, rows)
    marks = reshaped(x, batch, 1, length)
    return of(ReduceMax((2,), False), where(upto, marks, marks.lift(0)))


def torch_embedding(call: Call, table: Value, ids: Value, *_: Value | None) -> Value:
    return of(Gather(0), table, ids)


def word_embeddings(call: Call, words: Value, kernel: Value, bias: Value, table: Value) -> Value:
    """The maximum over positions of character convolutions per word (Kim et al., 2016)."""
    count, length = words.type.shape
    filters, _, width, size = kernel.type.shape
    span = number_of(width, "width of the kernel")
    room = length - span + 1
    letters = of(ew.Greater(), words, words.lift(0))
    lengths = of(ReduceSum((1,), True), cast(letters, I32))
    embedded = of(Gather(0), table, words)
    steps = call.made(Iota((1, length), 1, 0, 1, I32))
    looked = of(ew.Less(), steps, of(ew.Max(), lengths, lengths.lift(span)))
    embedded = where(reshaped(looked, count, length, 1), embedded, embedded.lift(0.0))
    windows = of(Concat(2), *(part(embedded, 1, i, room) for i in range(span)))
    weights = permuted(reshaped(kernel, filters, span * size), 1, 0)
    found = of(ew.Tanh(), of(MatMul(), windows, weights) + bias)
    least = of(ew.Max(), lengths - (span - 1), lengths.lift(1))
    starts = call.made(Iota((1, room), 1, 0, 1, I32))
    counted = reshaped(of(ew.Less(), starts, least), count, room, 1)
    greatest = of(ReduceMax((1,), False), where(counted, found, found.lift(-1e12)))
    present = of(ew.Greater(), part(words, 1, 0, 1), words.lift(0))
    return where(present, greatest, greatest.lift(0.0))


def is_all_finite(call: Call, *operands: Value) -> Value:
    """Whether no operand has an infinite or, unless ``isinf_only``, NaN element."""
    attrs, results = call.attrs, list[Value]()
    for operand in operands:
        x = cast(operand, F32) if operand.type.dtype.bits < 32 else operand
        nan, infinite = of(ew.IsNaN(), x), of(ew.IsInf(), x)
        if attrs.flag("isnan_only"):
            bad = nan
        else:
            bad = infinite if attrs.flag("isinf_only") else of(ew.Or(), nan, infinite)
        good = cast(of(ew.Not(), bad), I32)
        results.append(of(ReduceMin(tuple(range(x.type.rank)), False), good))
    total = results[0]
    for other in results[1:]:
        total = of(ew.Min(), total, other)
    return of(ew.Greater(), total, total.lift(0))


def unique_as_they_come(call: Call, x: Value) -> list[str]:
    """The unique elements of a vector in order of occurrence, the inverse indices, and the
    counts."""
    values, _, inverse, counts = different(call, x.name, None, False)
    return [values, inverse, counts]


CONTRIB_TOKENS = operators(
    NGramRepeatBlock=("input_ids[b,s]:int scores[b,w]", no_repeated_grams),
    NGramHashMapping=(
        "input_ids[b,s]:int multipliers[n]:int vocab_sizes[h]:int past_ids[b,p]:int? "
        "head_offsets[h]:int? eos_token_id:int? segment_ids[b,s]:int?",
        hashed_grams,
    ),
    TorchEmbedding=("weight indices:int padding_idx? scale_grad_by_freq?", torch_embedding),
    WordConvEmbedding=("Sequence[n,l]:int W[f,1,k,c] B[f] C[v,c]", word_embeddings),
    Unique=("x[n]", unique_as_they_come),
    IsAllFinite=("input*", is_all_finite),
)
