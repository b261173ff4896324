"""Taking the weights out of a serialised model before protobuf copies them.

Protobuf has no views: parsing copies every ``raw_data`` and reading it copies again.  This scan of
the wire format (https://protobuf.dev/programming-guides/encoding) finds the large ones among the
graph's initializers, so that arrays can be views of the memory-mapped file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

GRAPH = 7
"""``ModelProto.graph``"""
INITIALIZER = 5
"""``GraphProto.initializer``"""
RAW_DATA = 9
"""``TensorProto.raw_data``"""
LARGE = 1 << 12

_BYTES = 2


@dataclass(frozen=True)
class Split:
    """``message`` lacks the ``raw_data`` of initializers; ``raw`` has it, by their position."""

    message: bytes
    raw: Mapping[int, memoryview]


@dataclass(frozen=True)
class _Field:
    """Bytes ``start … end`` of a message; the payload of a nested one starts at ``content``."""

    number: int
    kind: int
    start: int
    content: int
    end: int


def split(data: memoryview) -> Split:
    """Separate large weights; a message that cannot be scanned is left as it is."""
    try:
        graphs = [f for f in _fields(data, 0, len(data)) if f.number == GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BYTES:
            return Split(bytes(data), {})
        raw: dict[int, memoryview] = {}
        parts = list(_without_weights(data, graphs[0], raw))
        if not raw:
            return Split(bytes(data), {})
        graph = b"".join(parts)
        head, tail = data[: graphs[0].start], data[graphs[0].end :]
        return Split(b"".join((head, _tagged(GRAPH, graph), tail)), raw)
    except (IndexError, ValueError):
        return Split(bytes(data), {})


def _without_weights(
    data: memoryview, graph: _Field, raw: dict[int, memoryview]
) -> Iterator[bytes | memoryview]:
    position = 0
    for field in _fields(data, graph.content, graph.end):
        if field.number != INITIALIZER or field.kind != _BYTES:
            yield data[field.start : field.end]
            continue
        weights = [f for f in _fields(data, field.content, field.end) if _is_large(f)]
        if len(weights) == 1:
            (one,) = weights
            raw[position] = data[one.content : one.end]
            rest = bytes(data[field.content : one.start]) + bytes(data[one.end : field.end])
            yield _tagged(INITIALIZER, rest)
        else:
            yield data[field.start : field.end]
        position += 1


def _is_large(field: _Field) -> bool:
    large = field.end - field.content >= LARGE
    return field.number == RAW_DATA and field.kind == _BYTES and large


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    while at < end:
        start = at
        tag, at = _varint(data, at)
        kind = tag & 7
        content = at
        match kind:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 2:
                size, content = _varint(data, at)
                at = content + size
            case 5:
                at += 4
            case _:
                raise ValueError(f"wire type {kind}")
        if at > end:
            raise ValueError("a field ends beyond its message")
        yield _Field(tag >> 3, kind, start, content, at)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _tagged(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)
