"""Exporting modules by torch.export, and reading files of exported programs."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import is_zipfile

import torch
from torch.export import ExportedProgram
from torch.export import dynamic_shapes as torch_dims

from modelcc.frontends.kit.files import open_model
from modelcc.frontends.torch.dimensions import Dims
from modelcc.frontends.torch.exported import Labels, import_exported
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph

_HINT = "see torch.export's guide, or use torch.compile(model, backend='modelcc')"
_EXAMPLES = "give example inputs, as in modelcc.compile(module, (torch.randn(1, 3),))"


@dataclass(frozen=True)
class NamedProgram:
    """An exported program, and the user's names of dimensions, by input and axis."""

    program: ExportedProgram
    labels: Labels


def import_torch(source: Any, dims: Dims) -> Graph:
    """The graph of a program of torch.export, or of the file (``.pt2``) of one.

    :class:`ModelError` if it is something else, or PyTorch cannot read it.
    """
    match source:
        case NamedProgram():
            return import_exported(source.program, dims, labels=source.labels)
        case ExportedProgram():
            return import_exported(source, dims)
        case str() | Path():
            return import_exported(_loaded(Path(source)), dims)
        case torch.nn.Module():
            raise ModelError("a module alone does not tell its inputs", (), _EXAMPLES)
        case _:
            kind = f"{type(source).__module__}.{type(source).__qualname__}"
            raise ModelError(f"this is no model: {kind}", (), _EXAMPLES)


def exported(
    module: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> NamedProgram:
    """``module`` as torch.export traces its call; :class:`ModelError` has PyTorch's message."""
    if not isinstance(module, torch.nn.Module):
        raise ModelError("only a torch.nn.Module is exported", (), _EXAMPLES)
    if isinstance(args, torch.Tensor):
        raise ModelError("the example inputs are a tensor, no tuple of them", (), _EXAMPLES)
    given, named = tuple(args or ()), dict(kwargs or {})
    try:
        program = torch.export.export(module, given, named, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # whatever the user's code and PyTorch raise
        where = (type(module).__name__, *_user_line(error))
        raise ModelError(f"torch.export refuses it: {error}", where, _HINT) from error
    return NamedProgram(program, _labels(module, given, named, dynamic_shapes))


def _loaded(path: Path) -> ExportedProgram:
    with open_model(path) as file:  # PyTorch logs a traceback of its own for what is no archive
        if not is_zipfile(file):
            hint = "write it by torch.export.save(program, path)"
            fault = "this is not a file of torch.export, or it is truncated or corrupted"
            raise ModelError(fault, (str(path),), hint)
    try:
        return _with_ranges_of_symbols(torch.export.load(path))
    except Exception as error:  # whatever is in the file
        raise ModelError(f"PyTorch cannot read it: {error}", (str(path),)) from error


def _with_ranges_of_symbols(program: ExportedProgram) -> ExportedProgram:
    """``program`` without ranges of expressions such as ``2*s``: PyTorch reads them from files as
    if of symbols, on which its own decompositions fail."""
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        ranges: dict[Any, Any] = getattr(getattr(mode, "shape_env", None), "var_to_range", {})
        for expression in [e for e in ranges if not e.is_Symbol]:
            del ranges[expression]
    return program


def _user_line(error: Exception) -> tuple[str, ...]:
    """File and line of the innermost frame of user code in the traceback, if any."""
    ours, theirs = str(Path(__file__).parent), str(Path(torch.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((ours, theirs, "<"))]
    return (f"{own[-1].filename}:{own[-1].lineno}",) if own else ()


def _labels(module: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Labels:
    if dynamic_shapes is None:
        return ()
    found: list[Sequence[str | None]] = []

    def note(_: object, leaf: Any, shape: Any) -> None:
        rank = len(leaf.shape) if isinstance(leaf, torch.Tensor) else 0
        found.append([_dim_name(shape, axis) for axis in range(rank)])

    inputs: Any = torch_dims._combine_args(module, args, kwargs)
    if not isinstance(dynamic_shapes, Mapping):
        inputs = type(dynamic_shapes)(inputs.values())
    torch_dims._tree_map_with_path(note, inputs, dynamic_shapes, tree_name="inputs")
    return found


def _dim_name(shape: Any, axis: int) -> str | None:
    """The name of an axis in ``shape``: that of a ``Dim``, unless automatic."""
    by_axis = cast(Any, shape if isinstance(shape, Mapping) else dict(enumerate(shape or ())))
    return getattr(by_axis.get(axis), "__name__", None)
