"""Everything derived from the shapes of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelcc.artifact.manifest import Manifest, TensorSpec
from modelcc.ir.index import Expr, Index, Sym, compile_index, split_affine, substitute
from modelcc.runtime.errors import InputError

Shape = tuple[int, ...]
Evaluator = Callable[[Mapping[str, int]], int]


@dataclass(frozen=True, eq=False)
class Signature:
    """One set of input shapes: values of the dimensions, output shapes, bytes of the arena.

    ``sizes`` includes entries for data-dependent ones; ``outputs`` assumes 1 for these (some are
    divisors).  Negative extents become 0: the run fails before writing there.
    """

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    sizes: NDArray[np.int64]
    arena: int


class SignatureMaker:
    """Binds a model's dimensions; its expressions are compiled once."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._definitions = [(name, _evaluator(value)) for name, value in manifest.definitions]
        self._arena = _evaluator(manifest.arena)
        self._outputs = [tuple(map(_evaluator, spec.shape)) for spec in manifest.outputs]

    def signature(self, shapes: Sequence[Shape]) -> Signature:
        """The signature for input ``shapes``; InputError names the input that does not fit."""
        sizes = bind_dimensions(self._manifest, shapes)
        dynamic = dict.fromkeys(self._manifest.sizes, 1)
        values = {**sizes, **dynamic}
        for name, evaluate in self._definitions:
            values[name] = evaluate(values)
        return Signature(
            inputs=tuple(shapes),
            outputs=tuple(tuple(max(0, e(values)) for e in shape) for shape in self._outputs),
            sizes=np.array([*sizes.values(), *dynamic.values()], np.int64),
            arena=self._arena(values),
        )


def _evaluator(value: Index) -> Evaluator:
    if isinstance(value, int):
        return lambda _: value
    return compile_index(value)


def bind_dimensions(manifest: Manifest, shapes: Sequence[Shape]) -> dict[str, int]:
    """The value of every named dimension, from the inputs' shapes.

    Plain names are bound first; then extents like ``seq + 1`` that have one unknown.  All
    extents are then checked.  InputError names contradicting inputs.
    """
    _check_ranks(manifest, shapes)
    values: dict[str, int] = {}
    origin: dict[str, str] = {}
    for spec, axis, extent, given in _extents(manifest, shapes):
        if isinstance(extent, Sym) and extent.name not in values:
            values[extent.name], origin[extent.name] = given, f"'{spec.name}' axis {axis}"
    known = -1
    while known < len(values) < len(manifest.dims):  # each round may bind what the next needs
        known = len(values)
        for spec, axis, extent, given in _extents(manifest, shapes):
            _solve(extent, given, f"'{spec.name}' axis {axis}", values, origin)
    for spec, axis, extent, given in _extents(manifest, shapes):
        _check_extent(spec, axis, extent, given, values, origin)
    for dim in manifest.dims:
        _check_bounds(dim.name, dim.low, dim.high, values, origin)
    return {dim.name: values[dim.name] for dim in manifest.dims}


def _extents(
    manifest: Manifest, shapes: Sequence[Shape]
) -> Iterator[tuple[TensorSpec, int, Index, int]]:
    for spec, shape in zip(manifest.inputs, shapes, strict=True):
        for axis, (extent, given) in enumerate(zip(spec.shape, shape, strict=True)):
            yield spec, axis, extent, given


def _check_ranks(manifest: Manifest, shapes: Sequence[Shape]) -> None:
    for spec, shape in zip(manifest.inputs, shapes, strict=True):
        if len(shape) != len(spec.shape):
            raise InputError(
                f"input '{spec.name}'",
                f"{len(spec.shape)} dimensions, {spec}",
                f"{len(shape)}, of shape {list(shape)}",
                "reshape it",
            )


def _solve(
    extent: Index, given: int, where: str, values: dict[str, int], origin: dict[str, str]
) -> None:
    """Binds the single unknown of ``extent == given``, if it occurs alone."""
    rest = substitute(extent, values)
    if not isinstance(rest, Expr) or len(rest.symbols) != 1:
        return
    (name,) = rest.symbols
    split = split_affine(rest, (name,))
    if split is None:
        return
    factor, constant = split[0][name], split[1]
    if isinstance(factor, int) and isinstance(constant, int) and not (given - constant) % factor:
        values[name], origin[name] = (given - constant) // factor, where


def _check_extent(
    spec: TensorSpec,
    axis: int,
    extent: Index,
    given: int,
    values: Mapping[str, int],
    origin: Mapping[str, str],
) -> None:
    wanted = substitute(extent, values)
    if wanted == given:
        return
    names = [] if isinstance(extent, int) else sorted(extent.symbols & values.keys())
    known = ", ".join(f"{name} is {values[name]} by {origin[name]}" for name in names)
    expected = f"{extent} ({known})" if known else f"{extent}"
    fixed = isinstance(extent, int)
    raise InputError(
        f"input '{spec.name}' axis {axis}",
        expected,
        f"{given}",
        f"the model was compiled for {spec}; recompile it with a named dimension to vary this"
        if fixed
        else f"the input is {spec}, and its dimensions must agree with those of the others",
    )


def _check_bounds(
    name: str, low: int, high: int | None, values: Mapping[str, int], origin: Mapping[str, str]
) -> None:
    if name not in values:
        raise InputError(f"dimension '{name}'", "an input that tells its size", "none",
                         "recompile the model with a fixed size")  # fmt: skip
    value = values[name]
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        raise InputError(
            f"input {origin[name]}",
            f"{name} = {bounds}",
            f"{value}",
            "give less or more, or recompile the model with other bounds",
        )


def size_names(manifest: Manifest) -> tuple[str, ...]:
    """Names of the values of a signature's ``sizes``."""
    return (*(dim.name for dim in manifest.dims), *manifest.sizes)
