"""Sorts by comparators that are lexicographic orders of their operands; top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.module import HloBlock, Operation
from modelcc.frontends.stablehlo.structure import combinable, converted
from modelcc.ir.types import BOOL, F32, I32
from modelcc.ops.gather import GatherElements
from modelcc.ops.top_k import TopK

Key = tuple[int, bool]
"""An operand of a sort, and whether in descending order."""

Definitions = Callable[[int], Operation | None]
"""The operation that defines a value."""


def sort(call: HloCall) -> Sequence[str]:
    """Stable sorts, by the last key first."""
    axis = call.integer("dimension", -1) % call.rank()
    keys = order_of(call.op.regions[0], call.defining)
    extent = call.shape()[axis]
    values = list(call.inputs)
    for number, descending in reversed(keys):
        key = _ordered(call, values[number])
        best, places = call.add(TopK(extent, axis, descending), key)
        own = call.type_of(values[number]).dtype
        values = [
            converted(call, best, own) if n == number and own != BOOL and len(values) == 1
            else call.emit(GatherElements(axis), value, places)
            for n, value in enumerate(values)
        ]  # fmt: skip
    return values


def _ordered(call: HloCall, value: str) -> str:
    """A key converted to a sortable type."""
    dtype = call.type_of(value).dtype
    return converted(call, value, combinable(dtype))


def order_of(region: HloBlock, outside: Definitions) -> list[Key]:
    """The keys of a comparator, the most significant first; not supported if it is not recognised.

    One of several keys is ``or(lt(a, b), and(eq(a, b), rest))``.  ``outside`` finds operations
    outside the region, for constants may be defined there.
    """
    own = {number: op for op in region.operations for number in op.results}

    def made(number: int) -> Operation | None:
        return own[number] if number in own else outside(number)

    keys = _keys(region.results[0], region, made)
    if not keys:
        unsupported("a comparator that is no order of its operands")
    return keys


def _keys(number: int, region: HloBlock, made: Definitions) -> list[Key]:
    op = made(number)
    if op is None:
        return []
    if op.name == "stablehlo.compare":
        found = _compared(op, region, made)
        direction = op.attributes["comparison_direction"]
        wanted = {"LT": False, "GT": True}.get(str(direction))
        if found is None or wanted is None:
            return []
        place, turned = found
        return [(place, wanted != turned)]
    if op.name != "stablehlo.or":
        return []
    first, rest = (made(n) for n in op.operands)
    if first is None or rest is None or rest.name != "stablehlo.and":
        return []
    before, after = _keys(op.operands[0], region, made), _keys(rest.operands[1], region, made)
    if before and _tells_of_nan(before[0], rest, region, made):
        return before
    equal = made(rest.operands[0])
    same = equal is not None and str(equal.attributes.get("comparison_direction")) == "EQ"
    return [*before, *after] if same and before and after else []


def _tells_of_nan(key: Key, op: Operation, region: HloBlock, made: Definitions) -> bool:
    """Whether ``and(ne(a, a), eq(b, b))`` makes NaN the maximum, as in TopK."""
    place, descending = key
    great, less = (2 * place, 2 * place + 1) if descending else (2 * place + 1, 2 * place)
    wanted = {("NE", great, great), ("EQ", less, less)}
    tests = [made(number) for number in op.operands]
    found = {
        (str(test.attributes.get("comparison_direction")), *(
            region.arguments.index(n) if n in region.arguments else -1 for n in test.operands))
        for test in tests if test is not None and test.name == "stablehlo.compare"
    }  # fmt: skip
    return found == wanted


def _compared(op: Operation, region: HloBlock, made: Definitions) -> tuple[int, bool] | None:
    """The operand whose elements are compared, and whether the second one is on the left."""
    sides = [_argument(number, region, made) for number in op.operands]
    if None in sides:
        return None
    left, right = (side for side in sides if side is not None)
    if left // 2 != right // 2 or left == right:
        return None
    return left // 2, left > right


def _argument(number: int, region: HloBlock, made: Definitions) -> int | None:
    """The argument that a value is, apart from canonicalisation of zeros and NaN."""
    if number in region.arguments:
        return region.arguments.index(number)
    op = made(number)
    if op is None or op.name != "stablehlo.select":
        return None
    condition = made(op.operands[0])
    chosen = made(op.operands[1])
    constant = chosen is not None and chosen.name == "stablehlo.constant"
    tested = condition is not None and condition.name == "stablehlo.compare"
    return _argument(op.operands[2], region, made) if constant and tested else None


def top_k(call: HloCall) -> Sequence[str]:
    """The largest elements of the last axis and their indices."""
    dtype = call.dtype()
    x = _ordered(call, call.input(0))
    if dtype.is_float and dtype.bits < 16:
        x = converted(call, x, F32)
    best, places = call.add(TopK(call.integer("k"), call.rank() - 1, True), x)
    return converted(call, best, dtype), converted(call, places, I32)


def approximate_top_k(call: HloCall) -> Sequence[str]:
    """Exact top-k, of which an accelerator may miss some, and its payload operands."""
    settings = call.attribute("mhlo.backend_config")
    (comparator,) = call.attribute("called_computations")
    ((number, descending),) = order_of(call.functions[comparator].body, call.defining)
    if number != 0 or not settings["aggregate_to_topk"]:
        unsupported("it gives candidates, not the best ones of them")
    axis = int(settings["reduction_dim"]) % call.rank()
    chosen = TopK(int(settings["top_k"]), axis, descending)
    best, places = call.add(chosen, _ordered(call, call.input(0)))
    return converted(call, best, call.dtype()), call.emit(
        GatherElements(axis), call.input(1), places
    )


SORTING = table(sort=sort)
TOP = table("chlo", top_k=top_k)
