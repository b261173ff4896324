"""Checks that calls of libraries are well formed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Index, bounds_of, loop_range, symbols
from modelcc.ir.library import Address, Argument, LibraryFunction, Null, Struct
from modelcc.ir.loop import Const, IndexOf
from modelcc.ir.loop_traversal import checks_in, takes_pool


def verify_library_function(function: LibraryFunction) -> None:
    """Raise :class:`ModelError` unless the call uses the parameters of its loop function, with
    buffers in bounds, and that function has neither threads nor checks."""
    meaning, call = function.meaning, function.call
    where = (function.name, f"{call.library}: {call.symbol}")
    if takes_pool(meaning) or checks_in(meaning):
        raise ModelError("a library function has neither threads nor checks", where)
    _require(call.count, frozenset(function.sizes), where)
    known = frozenset((*function.sizes, call.counter))
    ranges: Bounds = {call.counter: loop_range(call.count)} if call.counter else {}
    for index in _indices(call.arguments):
        _require(index, known, where)
    for address in call.addresses:
        _verify_address(function, address.buffer, address.offset, ranges, where)
    passed = {address.buffer for address in call.addresses}
    for parameter in function.parameters:
        if parameter.buffer.name not in passed:
            raise ModelError(f"the call is not given %{parameter.buffer.name}", where)


def _indices(arguments: Iterable[Argument]) -> Iterator[Index]:
    for argument in arguments:
        match argument:
            case Address(_, index) | IndexOf(index):
                yield index
            case Struct(_, fields):
                yield from _indices(fields)
            case Const() | Null():
                pass


def _require(index: Index, known: frozenset[str], where: tuple[str, ...]) -> None:
    for name in sorted(symbols(index) - known):
        raise ModelError(f"index symbol '{name}' is not defined", where)


def _verify_address(
    function: LibraryFunction, name: str, offset: Index, ranges: Bounds, where: tuple[str, ...]
) -> None:
    size = next((p.buffer.size for p in function.parameters if p.buffer.name == name), None)
    if size is None:
        raise ModelError(f"there is no buffer %{name}", where)
    found = bounds_of(offset, ranges)
    outside = found.hi is not None and isinstance(size, int) and found.hi >= max(size, 1)
    if outside or (found.lo is not None and found.lo < 0):
        raise ModelError(f"element {offset} is outside of %{name}, which has {size}", where)
