"""Deduplicates equal kernels, and gives every function a unique name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.library import Callee, ExternalCall, call_of, meaning_of, with_meaning
from modelcc.ir.loop import Function, Parameter, Stmt
from modelcc.ir.loop_traversal import grid_loop
from modelcc.ir.program import Launch

Content: TypeAlias = tuple[
    tuple[Parameter, ...], tuple[str, ...], tuple[Stmt, ...], ExternalCall | None
]


@dataclass(frozen=True)
class UniqueFunctions:
    """``functions`` without duplicates; ``names[step]`` is the one that step launches."""

    functions: tuple[Callee, ...]
    names: tuple[str, ...]


def unique_functions(
    calls: Sequence[tuple[Launch, Callee]], foreign: Collection[str] = ()
) -> UniqueFunctions:
    """Called functions without duplicates, named after the first of equal ones.

    Parameters for tensors of ``foreign`` buffers, which the caller allocates, assume only the
    alignment of one element; not in functions of groups, whose device memory the runtime allocates.
    ``source`` becomes that of all steps together.
    """
    numbers: dict[Content, int] = {}
    last: dict[tuple[str, tuple[Parameter, ...]], tuple[Function, int]] = {}
    groups: list[list[Callee]] = []
    places: list[int] = []
    for call, callee in calls:
        function = meaning_of(callee)
        own = function.name, _parameters(call, function, foreign)
        before, place = last.get(own, (None, 0))
        if before is None or before.body is not function.body:  # comparing bodies is expensive
            function = replace(function, parameters=own[1])
            content = (function.parameters, function.sizes, function.body, call_of(callee))
            place = numbers.setdefault(content, len(numbers))
            last[own] = function, place
            if place == len(groups):
                groups.append([])
            groups[place].append(with_meaning(callee, function))
        places.append(place)
    names = _names([same[0].name for same in groups])
    functions = tuple(
        with_meaning(same[0], replace(meaning_of(same[0]), name=name, source=_sources(same)))
        for name, same in zip(names, groups, strict=True)
    )
    return UniqueFunctions(functions, tuple(names[place] for place in places))


def _parameters(
    call: Launch, function: Function, foreign: Collection[str]
) -> tuple[Parameter, ...]:
    if grid_loop(function) is not None:
        return function.parameters
    return tuple(
        _element_aligned(parameter) if tensor in foreign else parameter
        for parameter, tensor in zip(function.parameters, call.arguments, strict=True)
    )


def _element_aligned(parameter: Parameter) -> Parameter:
    buffer = parameter.buffer
    return replace(parameter, buffer=replace(buffer, align=min(buffer.align, buffer.dtype.bytes)))


def _names(wanted: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for stem in wanted:
        name, number = stem, 2
        while name in names:
            name = f"{stem}_{number}"
            number += 1
        names[name] = None
    return list(names)


def _sources(same: Sequence[Callee]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for callee in same for name in meaning_of(callee).source))
