"""Splits the weights off a serialised model before protobuf copies them.

Protobuf has no views: parsing copies every ``raw_data`` and reading it copies again.  This scan of
the wire format (https://protobuf.dev/programming-guides/encoding) finds the large ones among the
graph's initializers, so that arrays can be views of the memory-mapped file.  Long lists in
attributes of ai.onnx.ml's operators, such as the nodes of tree ensembles, are split off likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

GRAPH = 7
"""``ModelProto.graph``"""
INITIALIZER = 5
"""``GraphProto.initializer``"""
RAW_DATA = 9
"""``TensorProto.raw_data``"""
LARGE = 1 << 12
NODE, OUTPUT, ATTRIBUTE, DOMAIN = 1, 2, 5, 7
"""``GraphProto.node``, and fields of ``NodeProto``"""
NAME, TYPE = 1, 20
"""Fields of ``AttributeProto``"""
LISTS = MappingProxyType({6: 7, 7: 8, 8: 9})
"""``AttributeProto.type`` of lists of floats, integers and texts → the field of their items"""
FUNCTIONS = 25
"""``ModelProto.functions``"""
LONG = 1 << 16
"""Size in bytes from which a list is split off."""

_BYTES = 2
_ITEM_KINDS = MappingProxyType({6: 5, 7: 0, 8: _BYTES})
_TYPE = b"\xa0\x01"
"""The tag of ``TYPE``, which is written after the items."""


@dataclass(frozen=True)
class SplitMessage:
    """``message`` lacks the ``raw_data`` of initializers; ``raw`` has it, by position.

    It lacks the items of long lists as well; ``lists`` has them by the first output of their node
    and the name of the attribute.
    """

    message: bytes
    raw: Mapping[int, memoryview]
    lists: Mapping[tuple[str, str], Items] = field(default_factory=dict[tuple[str, str], "Items"])


@dataclass(frozen=True)
class Items:
    """The items of a list: ``data``, each after ``tag``, or (None) packed; the whole attribute."""

    data: memoryview
    tag: int | None
    attribute: memoryview


@dataclass(frozen=True)
class _Field:
    """Bytes ``start … end`` of a message; the payload of a nested one starts at ``content``."""

    number: int
    kind: int
    start: int
    content: int
    end: int


def split(data: memoryview) -> SplitMessage:
    """Splits off large weights; a message that cannot be scanned is left unchanged."""
    raw: dict[int, memoryview] = {}
    lists: dict[tuple[str, str], Items] = {}
    try:
        fields = list(_fields(data, 0, len(data)))
        graphs = [f for f in fields if f.number == GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BYTES:
            return SplitMessage(bytes(data), {})
        parts = list(_without_weights(data, graphs[0], raw))
        if all(f.number != FUNCTIONS for f in fields):  # a function may be passed a list
            parts = list(_without_lists(parts, lists))
    except (IndexError, ValueError):
        return SplitMessage(bytes(data), {})
    if not raw and not lists:
        return SplitMessage(bytes(data), {})
    graph = b"".join(parts)
    head, tail = data[: graphs[0].start], data[graphs[0].end :]
    return SplitMessage(b"".join((head, _tagged(GRAPH, graph), tail)), raw, lists)


def _without_weights(
    data: memoryview, graph: _Field, raw: dict[int, memoryview]
) -> Iterator[memoryview]:
    """The fields of a graph, without large raw data."""
    position = 0
    for one in _fields(data, graph.content, graph.end):
        if one.number != INITIALIZER or one.kind != _BYTES:
            yield data[one.start : one.end]
            continue
        weights = [f for f in _fields(data, one.content, one.end) if _is_large(f)]
        if len(weights) == 1:
            (large,) = weights
            raw[position] = data[large.content : large.end]
            rest = bytes(data[one.content : large.start]) + bytes(data[large.end : one.end])
            yield memoryview(_tagged(INITIALIZER, rest))
        else:
            yield data[one.start : one.end]
        position += 1


def _without_lists(
    parts: Iterable[memoryview], lists: dict[tuple[str, str], Items]
) -> Iterator[memoryview]:
    """``parts``, fields of a graph, with nodes that lack the items of long lists."""
    for part in parts:
        tag, _ = _varint(part, 0)
        if len(part) < LONG or tag != NODE << 3 | _BYTES:
            yield part
            continue
        (node,) = _fields(part, 0, len(part))
        fields = list(_fields(part, node.content, node.end))
        domains = [bytes(part[f.content : f.end]) for f in fields if f.number == DOMAIN]
        outputs = [part[f.content : f.end] for f in fields if f.number == OUTPUT]
        if domains != [b"ai.onnx.ml"] or not outputs or not len(outputs[0]):
            yield part
            continue
        output = str(outputs[0], "utf-8")
        rest = b"".join(_without_items(part, one, output, lists) for one in fields)
        yield memoryview(_tagged(NODE, rest))


def _without_items(
    data: memoryview, one: _Field, output: str, lists: dict[tuple[str, str], Items]
) -> memoryview | bytes:
    """A field of a node; for a long list only its name and its type."""
    whole = data[one.start : one.end]
    if one.number != ATTRIBUTE or one.kind != _BYTES or len(whole) < LONG:
        return whole
    name = next(_fields(data, one.content, one.end))
    end = one.end - len(_TYPE) - 1
    kind = data[one.end - 1]
    if name.number != NAME or bytes(data[end : one.end - 1]) != _TYPE or kind not in LISTS:
        return whole
    tag, start = LISTS[kind] << 3 | _ITEM_KINDS[kind], name.end
    packed = data[start] == LISTS[kind] << 3 | _BYTES and tag != data[start]
    if packed:
        (items,) = _fields(data, start, end)
        start = items.content
    key = output, str(data[name.content : name.end], "utf-8")
    if key in lists:
        return whole
    attribute = data[one.content : one.end]
    lists[key] = Items(data[start:end], None if packed else tag, attribute)
    stub = bytes(data[one.content : name.end]) + bytes(data[end : one.end])
    return _tagged(ATTRIBUTE, stub)


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
