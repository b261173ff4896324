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
    found: dict[Content, list[Function]] = {}
    keys: list[Content] = []
    for call in calls:
        parameters = _parameters(call, foreign)
        key = (parameters, call.function.sizes, call.function.body)
        found.setdefault(key, []).append(replace(call.function, parameters=parameters))
        keys.append(key)
    names = _names(found)
    functions = tuple(
        replace(same[0], name=names[key], source=_sources(same)) for key, same in found.items()
    )
    return UniqueFunctions(functions, tuple(names[key] for key in keys))


def _parameters(call: KernelCall, foreign: Collection[str]) -> tuple[Parameter, ...]:
    return tuple(
        _element_aligned(parameter) if tensor in foreign else parameter
        for parameter, tensor in zip(call.function.parameters, call.arguments, strict=True)
    )


def _element_aligned(parameter: Parameter) -> Parameter:
    buffer = parameter.buffer
    return replace(parameter, buffer=replace(buffer, align=min(buffer.align, buffer.dtype.bytes)))


def _names(found: dict[Content, list[Function]]) -> dict[Content, str]:
    names: dict[Content, str] = {}
    taken: set[str] = set()
    for key, same in found.items():
        name, number = same[0].name, 2
        while name in taken:
            name = f"{same[0].name}_{number}"
            number += 1
        taken.add(name)
        names[key] = name
    return names


def _sources(same: Sequence[Function]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for function in same for name in function.source))
