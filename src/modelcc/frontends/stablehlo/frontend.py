"""Entry point of the StableHLO frontend: sources of modules, and their shape information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from jax import export

from modelcc.frontends.kit.files import open_model
from modelcc.frontends.stablehlo.convert import convert
from modelcc.frontends.stablehlo.inputs import Dims, Shapes, module_inputs
from modelcc.frontends.stablehlo.module import HloModule
from modelcc.frontends.stablehlo.reading import (
    BYTECODE,
    deserialized,
    read_bytes,
    read_module,
    read_text,
)
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph


@dataclass(frozen=True)
class LoweredModule:
    """A module of MLIR's bindings, with jax's shapes of its arguments."""

    module: Any
    shapes: Shapes | None = None
    name: str = "model"


Source = Any
"""A path, the text of a module, MLIR bytecode, a ``jax.export.Exported`` or its serialised form, or
a :class:`LoweredModule`."""


def import_stablehlo(source: Source, dims: Dims | None = None) -> Graph:
    """The graph of a StableHLO module; ``dims`` fixes or bounds its named dimensions.

    :class:`ModelError` if the source is no module, and :class:`UnsupportedModel`, listing every
    operation, for what modelcc cannot import.
    """
    module, shapes = _read(bytes(source) if isinstance(source, bytearray) else source)
    return convert(module, module_inputs(module, dims or {}, shapes))


def _read(source: Source) -> tuple[HloModule, Shapes | None]:
    match source:
        case LoweredModule(module, shapes, name):
            return read_module(module, name), shapes
        case export.Exported():
            return _exported(source, source.fun_name)
        case bytes():
            return _read_bytes(source, "model")
        case str() if "{" in source and ("module" in source or "func.func" in source):
            return read_text(source), None
        case str() | Path():
            return _read_file(Path(source))
        case _:
            kind = cast("type[Any]", type(source))
            raise ModelError(f"{kind.__module__}.{kind.__qualname__} is no StableHLO module", (),
                             "give a jax.export.Exported, or use modelcc.jax.compile")  # fmt: skip


def _read_file(path: Path) -> tuple[HloModule, Shapes | None]:
    with open_model(path) as file:
        data = file.read()
    return _read_bytes(data, path.stem)


def _read_bytes(data: bytes, name: str) -> tuple[HloModule, Shapes | None]:
    if data.startswith(BYTECODE):
        return read_bytes(data, name), None
    text = _text(data)
    if text is not None:
        return read_text(text, name), None
    return _exported(deserialized(data, name), name)


def _exported(exported: Any, name: str) -> tuple[HloModule, Shapes]:
    """With jax's shapes of the arguments that are kept.

    For several platforms, the version for CPUs, or else for the first one.
    """
    kept = [exported.in_avals[n] for n in exported.module_kept_var_idx]
    shapes = [[e if isinstance(e, int) else str(e) for e in aval.shape] for aval in kept]
    platforms: Sequence[str] = exported.platforms
    place = platforms.index("cpu") if "cpu" in platforms else 0
    module = read_bytes(exported.mlir_module_serialized, name)
    return replace(module, constants={"_platform_index": place}), shapes


def _text(data: bytes) -> str | None:
    """The text that the bytes of a file encode, if they do."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if "func.func" in text or "module" in text else None
