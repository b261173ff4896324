"""Arguments of a module: names, types and named dimensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from modelcc.frontends.kit.complex_values import part_type
from modelcc.frontends.stablehlo.module import HloFunction, HloModule, ValueType
from modelcc.ir.errors import ModelError
from modelcc.ir.index import (
    DIM,
    Index,
    Range,
    Sym,
    floordiv,
    maximum,
    minimum,
    mod,
    substitute,
    symbols,
)
from modelcc.ir.types import TensorType

Dims = Mapping[str, int | Range]
Shapes = Sequence[Sequence[int | str]]
"""Shapes of arguments from the exporter: numbers, and expressions of named dimensions."""


@dataclass(frozen=True)
class ModuleInputs:
    """Names and types of the arguments of ``main`` by position, and its named dimensions.

    ``results`` are the names of its results; ``sizes`` are the arguments that are sizes of
    named dimensions, which the caller does not pass.
    """

    names: Mapping[int, str]
    types: Mapping[int, TensorType]
    bounds: Mapping[str, Range]
    results: tuple[str, ...]
    sizes: Mapping[int, Index]


def module_inputs(module: HloModule, dims: Dims, shapes: Shapes | None = None) -> ModuleInputs:
    """The arguments of ``main``.

    Without ``shapes`` a dynamic extent is named as in the function that ``main`` calls, else after
    the argument and its position.  ``dims`` fixes or bounds names.
    """
    main = module.main
    given = [n for n in range(len(main.body.arguments)) if n not in main.sizes]
    names = _unique({n: _label(module, n) or f"arg{n}" for n in given})
    known = _sizes(module)
    fixed: dict[str, Index] = {n: v for n, v in dims.items() if isinstance(v, int)}
    types: dict[int, TensorType] = {}
    mentioned: set[str] = set()
    for place, n in enumerate(given):
        written = main.body.types[n]
        shape = None if shapes is None else shapes[place]
        extents = tuple(_extents(written, n, names[n], known, shape))
        mentioned.update(name for extent in extents for name in symbols(extent))
        types[n] = _tensor(written, [substitute(e, fixed) for e in extents], names[n])
    unknown = [name for name in dims if name not in mentioned]
    if unknown:
        raise ModelError(f"the model has no dimension {unknown[0]!r}", (module.name,))
    open_ = sorted(mentioned - fixed.keys())
    bounds = {name: b if isinstance(b := dims.get(name), Range) else DIM for name in open_}
    known_sizes = {**fixed, **module.constants}
    sizes = {n: known_sizes.get(name, Sym(name)) for n, name in main.sizes.items()}
    hidden = [name for name in main.sizes.values() if name not in {*mentioned, *known_sizes}]
    if hidden:
        raise ModelError(
            f"no argument tells the size of dimension {hidden[0]!r}",
            (module.name,),
            "export the function with jax.export",
        )
    return ModuleInputs(names, types, bounds, _results(main), sizes)


def _tensor(written: ValueType, extents: Sequence[Index], name: str) -> TensorType:
    if written.dtype is None:
        raise ModelError(f"argument {name!r} is of {written}, which modelcc has no type for")
    if written.dtype.kind == "complex":
        return TensorType((*extents, 2), part_type(written.dtype))
    return TensorType(tuple(extents), written.dtype)


def _extents(
    written: ValueType,
    position: int,
    name: str,
    known: Mapping[tuple[int, int], str],
    shape: Sequence[int | str] | None,
) -> Iterator[Index]:
    for axis, extent in enumerate(written.shape):
        if extent is not None:
            yield extent
        elif shape is not None:
            yield dimension(shape[axis])
        else:
            yield Sym(known.get((position, axis), f"{name}_d{axis}"))


def _sizes(module: HloModule) -> dict[tuple[int, int], str]:
    """Names of extents, by argument and axis, from the function that ``main`` passes them to."""
    main = module.main.body
    axes: dict[int, tuple[int, int]] = {}
    found: dict[tuple[int, int], str] = {}
    for op in main.operations:
        if op.name == "stablehlo.get_dimension_size" and op.operands[0] in main.arguments:
            place = main.arguments.index(op.operands[0]), int(op.attributes["dimension"])
            axes[op.results[0]] = place
        if op.name in ("func.call", "call"):
            callee = module.functions.get(str(op.attributes.get("callee")))
            sizes: Mapping[int, str] = {} if callee is None else callee.sizes
            for n, name in sizes.items():
                if op.operands[n] in axes:
                    found[axes[op.operands[n]]] = name
    return found


def _label(module: HloModule, position: int) -> str:
    """The program's name of an argument, if need be from the function that ``main`` passes it
    to."""
    main = module.main
    if main.labels[position]:
        return main.labels[position]
    number = main.body.arguments[position]
    for op in main.body.operations:
        callee = module.functions.get(str(op.attributes.get("callee")))
        if op.name == "func.call" and callee is not None and number in op.operands:
            return callee.labels[op.operands.index(number)]
    return ""


def _unique(names: Mapping[int, str]) -> dict[int, str]:
    seen: set[str] = set()
    found: dict[int, str] = {}
    for n, name in names.items():
        found[n] = f"{name}_{n}" if name in seen else name
        seen.add(found[n])
    return found


def _results(main: HloFunction) -> tuple[str, ...]:
    names = {n: label or f"result{n}" for n, label in enumerate(main.result_labels)}
    return tuple(_unique(names).values())


def dimension(spelled: int | str) -> Index:
    """A dimension in jax's syntax: ``2*b + floordiv(n, 2)``; :class:`ModelError` for others."""
    if isinstance(spelled, int):
        return spelled
    try:
        return _index(ast.parse(spelled.replace("^", "**"), mode="eval").body)
    except (KeyError, SyntaxError, ValueError) as error:
        raise ModelError(f"{spelled!r} is no dimension that modelcc can read") from error


_FUNCTIONS: Mapping[str, Callable[..., Index]] = MappingProxyType(
    {"floordiv": floordiv, "mod": mod, "max": maximum, "min": minimum}
)


def _index(node: ast.expr) -> Index:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return Sym(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_index(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as times)):
            result: Index = 1
            for _ in range(times):
                result = result * _index(left)
            return result
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _index(left), _index(right)
            if isinstance(op, ast.Mult):
                return a * b
            return a + b if isinstance(op, ast.Add) else a - b
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*map(_index, args))
        case _:
            raise ValueError(ast.dump(node))
