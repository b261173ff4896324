"""Reductions and sorts of complex numbers, according to their regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from modelcc.frontends.kit.complex_values import ComplexValue
from modelcc.frontends.stablehlo.call import Handler, HloCall
from modelcc.frontends.stablehlo.module import HloBlock, Operation
from modelcc.frontends.stablehlo.reduction import by_halves
from modelcc.frontends.stablehlo.sorting import sort


def _parts(call: HloCall, names: Sequence[str]) -> list[str]:
    """``names``, complex ones replaced by both parts."""
    groups = ((name, call.emitter.find_group(name)) for name in names)
    return [part for name, group in groups for part in (group.parts if group else (name,))]


def _whole(call: HloCall, like: Sequence[str], parts: Sequence[str]) -> list[str]:
    """Values from parts, complex where ``like`` is."""
    rest = iter(parts)
    groups = (call.emitter.find_group(name) is not None for name in like)
    return [call.group(ComplexValue(next(rest), next(rest))) if g else next(rest) for g in groups]


def _reduce(call: HloCall) -> Sequence[str]:
    (region,), count = call.op.regions, len(call.inputs) // 2
    values, firsts = call.inputs[:count], call.inputs[count:]

    def combined(left: Sequence[str], right: Sequence[str]) -> Sequence[str]:
        sides = [*_whole(call, values, left), *_whole(call, values, right)]
        return _parts(call, call.inline(region, sides, lifted=True))

    parts = by_halves(call, combined, _parts(call, values), call.integers("dimensions"))
    return call.inline(region, [*firsts, *_whole(call, values, parts)], lifted=True)


def _sort(call: HloCall) -> Sequence[str]:
    """Parts are sorted as separate operands."""
    complex_ = [call.emitter.find_group(name) is not None for name in call.inputs]
    (region,) = call.op.regions
    own = call.with_inputs(*_parts(call, call.inputs))
    apart = replace(own, op=replace(call.op, regions=(_of_parts(region, complex_),)))
    return _whole(call, call.inputs, sort(apart))


def _of_parts(region: HloBlock, complex_: Sequence[bool]) -> HloBlock:
    """The region with two pairs of arguments for each complex pair, with negative numbers."""
    arguments, names = list[int](), dict[int, tuple[int, int]]()
    for place, pair in enumerate(zip(region.arguments[::2], region.arguments[1::2], strict=True)):
        if complex_[place]:
            names |= {number: (-2 * number - 1, -2 * number - 2) for number in pair}
            arguments += [names[number][part] for part in (0, 1) for number in pair]
        else:
            arguments += pair
    taken: dict[int, int] = {}
    kept: list[Operation] = []
    for op in region.operations:
        part = _PARTS.get(op.name)
        if part is not None and op.operands[0] in names:
            taken[op.results[0]] = names[op.operands[0]][part]
        else:
            kept.append(replace(op, operands=tuple(taken.get(n, n) for n in op.operands)))
    return replace(region, arguments=tuple(arguments), operations=tuple(kept))


_PARTS: Mapping[str, int] = MappingProxyType({"stablehlo.real": 0, "stablehlo.imag": 1})
BY_REGIONS: Mapping[str, Handler] = MappingProxyType(
    {"stablehlo.reduce": _reduce, "stablehlo.sort": _sort}
)
