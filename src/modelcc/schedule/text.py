"""The text of schedules, which reads back to equal ones::

    tiled(vector=a1, lanes=8, tile={a1b: 2, a0: 6}, unroll={a2: 4}, parallel=16)
    rows(lanes=8, unroll=4)
    row_blocks(rows=64, scores=tiled(vector=a3, lanes=8, tile={a3b: 2}), steps=[rows(lanes=8)])
    parts(tiled(vector=a0, lanes=8), rows(lanes=8, unroll=2))
    library(name=openblas, symbol=cblas_sgemm)
    group_product(rows=64, columns=64, terms=8, thread_rows=4, thread_columns=4)
    group_row_product(rows=group_rows(threads=128), product=group_reduction(threads=32, results=4))

Fields that have their default are left out.  The grammar is a part of Python's expressions.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import MappingProxyType
from typing import Any, cast

from modelcc.schedule.group_schedule import (
    FlashDecoding,
    GroupArrays,
    GroupAttention,
    GroupChain,
    GroupDecode,
    GroupProduct,
    GroupReduction,
    GroupRowProduct,
    GroupRows,
    GroupScatter,
    GroupTranspose,
    GroupWindows,
    ListedScatter,
    Pointwise,
    TensorAttention,
    TensorChain,
    TensorProduct,
)
from modelcc.schedule.schedule import (
    ComputeAt,
    LibraryCall,
    Part,
    Parts,
    RowBlocks,
    Rows,
    RowSums,
    Schedule,
    ScheduleError,
    Step,
    StraightRows,
    Tiled,
)

_WORDS: Mapping[str, type[Schedule | Part]] = MappingProxyType(
    {
        "tiled": Tiled,
        "rows": Rows,
        "straight_rows": StraightRows,
        "parts": Parts,
        "compute_at": ComputeAt,
        "row_blocks": RowBlocks,
        "row_sums": RowSums,
        "library": LibraryCall,
        "pointwise": Pointwise,
        "group_transpose": GroupTranspose,
        "group_windows": GroupWindows,
        "group_arrays": GroupArrays,
        "group_reduction": GroupReduction,
        "group_rows": GroupRows,
        "group_row_product": GroupRowProduct,
        "group_product": GroupProduct,
        "tensor_product": TensorProduct,
        "group_attention": GroupAttention,
        "tensor_attention": TensorAttention,
        "group_chain": GroupChain,
        "tensor_chain": TensorChain,
        "group_decode": GroupDecode,
        "flash_decoding": FlashDecoding,
        "group_scatter": GroupScatter,
        "listed_scatter": ListedScatter,
    }
)
_SEVERAL: Mapping[type, str] = MappingProxyType(
    {Parts: "parts", ComputeAt: "groups", StraightRows: "parts"}
)
"""Kinds that others are in, and the field that has these."""
_WANTED: Mapping[str, str] = MappingProxyType(
    {
        "bool": "True or False",
        "int": "a number",
        "Factors": "{loop: number, …}",
        "Tiled | None": "tiled(…)",
        "GroupRows": "group_rows(…)",
        "GroupReduction": "group_reduction(…)",
        "tuple[Step, ...]": "[tiled(…), rows(…), …]",
    }
)
"""What a field's value is, by its type."""


def print_schedule(schedule: Schedule) -> str:
    """One line."""
    if isinstance(schedule, Parts) and len(schedule.parts) == 1:
        return _printed(schedule.parts[0])
    return _printed(schedule)


def _printed(schedule: Schedule | Part) -> str:
    word = next(word for word, kind in _WORDS.items() if kind is type(schedule))
    several = _SEVERAL.get(type(schedule))
    inner = [_printed(part) for part in getattr(schedule, several)] if several else []
    given = [
        f"{field.name}={_value(getattr(schedule, field.name))}"
        for field in fields(schedule)
        if field.name != several and getattr(schedule, field.name) != field.default
    ]
    return f"{word}({', '.join((*inner, *given))})"


def _value(value: Any) -> str:
    if isinstance(value, Tiled | GroupRows | GroupReduction):
        return _printed(value)
    if isinstance(value, tuple) and isinstance(value[0], Tiled | Rows):
        return f"[{', '.join(map(_printed, cast('tuple[Step, ...]', value)))}]"
    if isinstance(value, tuple):
        pairs = cast("tuple[tuple[str, int], ...]", value)
        return "{" + ", ".join(f"{name}: {size}" for name, size in pairs) + "}"
    return str(value)


def parse_schedule(text: str) -> Schedule:
    """The schedule that ``text`` says; :class:`ScheduleError` tells where it is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" at column {error.offset}" if isinstance(error, SyntaxError) else ""
        raise ScheduleError(f"this is no schedule{place}: {text.strip()!r}") from error
    schedule = _parsed(tree)
    return Parts((schedule,)) if isinstance(schedule, Tiled | Rows | StraightRows) else schedule


def _parsed(node: ast.expr) -> Schedule | Part:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise ScheduleError(f"{_place(node)}: expected one of {', '.join(_WORDS)} and (")
    kind = _WORDS.get(node.func.id)
    if kind is None:
        raise ScheduleError(f"{_place(node)}: {node.func.id!r} is none of {', '.join(_WORDS)}")
    several = _SEVERAL.get(kind)
    if node.args and several is None:
        raise ScheduleError(f"{_place(node.args[0])}: name what this is, as in lanes=8")
    values: dict[str, Any] = {} if several is None else {several: _parts(node, kind)}
    slots = {field.name: field for field in fields(kind) if field.name != several}
    for keyword in node.keywords:
        field = slots.get(keyword.arg or "")
        if field is None or field.name in values:
            names = ", ".join(slots)
            raise ScheduleError(f"{_place(keyword.value)}: {node.func.id} has {names}, each once")
        values[field.name] = _parsed_value(keyword.value, field)
    missing = [f.name for f in slots.values() if f.default is MISSING and f.name not in values]
    if missing:
        raise ScheduleError(f"{_place(node)}: {node.func.id} needs {missing[0]}")
    return kind(**values)


def _parts(node: ast.Call, kind: type) -> tuple[Part, ...]:
    parsed = [(argument, _parsed(argument)) for argument in node.args]
    for argument, part in parsed:
        fits = isinstance(part, Part if kind is Parts else Tiled)
        if not fits:
            raise ScheduleError(f"{_place(argument)}: this cannot be within another schedule")
    return cast("tuple[Part, ...]", tuple(part for _, part in parsed))


def _parsed_value(node: ast.expr, field: Field[Any]) -> Any:
    """A number, a yes or no, the name of a loop or word, numbers of loops, or tiles."""
    kind = str(field.type)
    match node, kind:
        case ast.Constant(value=bool() as value), "bool":
            return value
        case ast.Constant(value=int() as value), "int" if not isinstance(value, bool):
            return value
        case ast.Name(id=name), "str" | "Exchange":
            return name
        case ast.Dict(keys=keys, values=values), "Factors":
            return tuple(map(_factor, keys, values))
        case ast.Call(func=ast.Name(id="tiled")), "Tiled | None":
            return _parsed(node)
        case ast.Call(func=ast.Name(id=name)), "GroupRows" | "GroupReduction" if (
            f"{name}(…)" == _WANTED[kind]
        ):
            return _parsed(node)
        case ast.List(elts=steps), "tuple[Step, ...]" if steps:
            return tuple(map(_step, steps))
        case _:
            raise ScheduleError(f"{_place(node)}: {field.name} is {_WANTED.get(kind, 'a name')}")


def _step(node: ast.expr) -> Step:
    step = _parsed(node)
    if not isinstance(step, Tiled | Rows):
        raise ScheduleError(f"{_place(node)}: a step is tiled(…) or rows(…)")
    return step


def _factor(key: ast.expr | None, value: ast.expr) -> tuple[str, int]:
    match key, value:
        case ast.Name(id=name), ast.Constant(value=int() as size) if not isinstance(size, bool):
            return name, size
        case _:
            raise ScheduleError(f"{_place(value)}: expected a loop and a number, as in a0: 4")


def _place(node: ast.expr) -> str:
    return f"column {node.col_offset + 1}"
