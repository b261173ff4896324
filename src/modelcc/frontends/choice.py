"""Which frontend reads a model: a table, of which a frontend is imported when it is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range

Dims = Mapping[str, int | Range]


def _is_none(_: bytes) -> bool:
    return False


def _is_stablehlo(data: bytes) -> bool:
    """MLIR's bytecode, the text of a module, or what ``jax.export`` serialises to."""
    return data.startswith(_BYTECODE) or _is_export(data) or is_module_text(data)


def is_module_text(data: bytes) -> bool:
    """Whether ``data`` is text that has a function of MLIR; a protobuf has control characters."""
    return _CONTROL.search(data) is None and b"func.func" in data


def _is_export(data: bytes) -> bool:
    """A flatbuffer without a name that holds bytecode.

    It begins with the distance to its root, of less than 64 KB; a protobuf cannot have these zeros.
    """
    return data[2:4] == b"\0\0" and _BYTECODE in data


def _is_tflite(data: bytes) -> bool:
    return data[4:8] == b"TFL3"


_BYTECODE = b"ML\xefR"
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")


@dataclass(frozen=True)
class Frontend:
    """A reader of models: ``function`` of ``module`` makes a graph of a source and ``dims``.

    Its sources are files with ``suffixes``, what it ``recognises`` of bytes and texts, and objects
    of ``packages``.  ``extra`` installs what it needs.  ``caller`` makes a source of one that can
    be called, and example arguments.
    """

    module: str
    function: str
    extra: str = ""
    suffixes: tuple[str, ...] = ()
    recognises: Callable[[bytes], bool] = _is_none
    packages: tuple[str, ...] = ()
    caller: str = ""

    def reads(self, source: object) -> bool:
        """Whether ``source`` is one of its kind."""
        match source:
            case str() | Path():
                return Path(source).suffix.lower() in self.suffixes
            case bytes() | bytearray():
                return self.recognises(bytes(source))
            case _:
                homes = (f"{kind.__module__}." for kind in type(source).__mro__)
                packages = tuple(f"{name}." for name in self.packages)
                return any(home.startswith(packages) for home in homes)

    def read(self, source: Any, dims: Dims) -> Graph:
        """The graph of ``source``; :class:`ModelError` if it is none, or a package is missing."""
        return self._loaded(self.function)(source, dims)

    def called(self, source: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Any:
        """A source of this frontend: what ``source`` computes of such arguments."""
        if not self.caller and callable(source):
            hint = (
                "make it the forward of a torch.nn.Module, or use torch.compile(f, "
                "backend='modelcc') or modelcc.jax.compile(f, *args)"
            )
            raise ModelError("a function is no model", (), hint)
        if not self.caller:
            hint = "args, kwargs and dynamic_shapes are for a torch.nn.Module"
            raise ModelError("this model knows its inputs", (), hint)
        return self._loaded(self.caller)(source, args, kwargs, dynamic_shapes)

    def _loaded(self, name: str) -> Callable[..., Any]:
        try:
            return getattr(import_module(self.module), name)
        except ModuleNotFoundError as error:
            if not self.extra or (error.name or "").startswith("modelcc"):
                raise
            hint = f"pip install modelcc[{self.extra}]"
            raise ModelError(f"this model needs the package {error.name}", (), hint) from error


ONNX = Frontend("modelcc.frontends.onnx", "import_onnx")
"""Reads what no other frontend does, and says what it is not."""

FRONTENDS = (
    Frontend(
        "modelcc.frontends.torch",
        "import_torch",
        extra="torch",
        suffixes=(".pt2",),
        packages=("torch", "modelcc.frontends.torch"),
        caller="exported",
    ),
    Frontend(
        "modelcc.frontends.tflite",
        "import_tflite",
        extra="tflite",
        suffixes=(".tflite", ".lite"),
        recognises=_is_tflite,
    ),
    Frontend(
        "modelcc.frontends.stablehlo",
        "import_stablehlo",
        extra="jax",
        suffixes=(".mlir", ".mlirbc", ".stablehlo", ".jax"),
        recognises=_is_stablehlo,
        packages=("jax", "jaxlib", "modelcc.frontends.stablehlo"),
    ),
)


def frontend_of(source: object) -> Frontend:
    """The frontend that reads ``source``."""
    return next((f for f in FRONTENDS if f.reads(source)), ONNX)
