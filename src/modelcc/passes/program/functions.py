"""Equal kernels become one function; every function gets a name of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.loop import Function, Parameter, Stmt
from modelcc.ir.scheduled import KernelCall

Content: TypeAlias = tuple[tuple[Parameter, ...], tuple[str, ...], tuple[Stmt, ...]]


@dataclass(frozen=True)
class UniqueFunctions:
    """``functions`` without duplicates; ``names[step]`` is the one that step launches."""

    functions: tuple[Function, ...]
    names: tuple[str, ...]


def unique_functions(calls: Sequence[KernelCall], foreign: Collection[str] = ()) -> UniqueFunctions:
    """Functions of ``calls``, equal ones once, named after the first of them.

    Those that get tensors of ``foreign`` buffers, which the caller allocates, rely on no more
    than the alignment of one element there.  ``source`` becomes that of all steps together.
    """
    numbers: dict[Content, int] = {}
    known: dict[tuple[object, ...], int] = {}  # by identity: bodies are large to compare
    found: list[list[Function]] = []
    places: list[int] = []
    for call in calls:
        function = replace(call.function, parameters=_parameters(call, foreign))
        own = (id(function.body), function.sizes, function.parameters)
        place = known.get(own)
        if place is None:
            content = (function.parameters, function.sizes, function.body)
            place = numbers.setdefault(content, len(numbers))
            known[own] = place
        if place == len(found):
            found.append([])
        found[place].append(function)
        places.append(place)
    names = _names(found)
    functions = tuple(
        replace(same[0], name=name, source=_sources(same))
        for name, same in zip(names, found, strict=True)
    )
    return UniqueFunctions(functions, tuple(names[place] for place in places))


def _parameters(call: KernelCall, foreign: Collection[str]) -> tuple[Parameter, ...]:
    return tuple(
        _element_aligned(parameter) if tensor in foreign else parameter
        for parameter, tensor in zip(call.function.parameters, call.arguments, strict=True)
    )


def _element_aligned(parameter: Parameter) -> Parameter:
    buffer = parameter.buffer
    return replace(parameter, buffer=replace(buffer, align=min(buffer.align, buffer.dtype.bytes)))


def _names(found: Sequence[Sequence[Function]]) -> list[str]:
    names: dict[str, None] = {}
    for same in found:
        name, number = same[0].name, 2
        while name in names:
            name = f"{same[0].name}_{number}"
            number += 1
        names[name] = None
    return list(names)


def _sources(same: Sequence[Function]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for function in same for name in function.source))
