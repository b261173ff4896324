"""Which frontend reads a model: a table, of which a frontend is imported when it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range

Dims = Mapping[str, int | Range]


@dataclass(frozen=True)
class Frontend:
    """A reader of models: ``function`` of ``module`` makes a graph of a source and ``dims``.

    Its sources are files with ``suffixes``, bytes that begin with one of ``magic`` or that hold
    others at a place, and objects of ``packages``.  ``extra`` installs what it needs.  ``caller``
    makes a source of one that can be called, and example arguments.
    """

    module: str
    function: str
    extra: str = ""
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    holds: tuple[int, bytes] | None = None
    packages: tuple[str, ...] = ()
    caller: str = ""

    def reads(self, source: object) -> bool:
        """Whether ``source`` is one of its kind."""
        match source:
            case str() | Path():
                return Path(source).suffix.lower() in self.suffixes
            case bytes() | bytearray():
                start, mark = self.holds or (0, b"")
                marked = self.holds is not None and source[start : start + len(mark)] == mark
                return marked or source.startswith(self.magic)
            case _:
                homes = (f"{kind.__module__}." for kind in type(source).__mro__)
                packages = tuple(f"{name}." for name in self.packages)
                return any(home.startswith(packages) for home in homes)

    def read(self, source: Any, dims: Dims) -> Graph:
        """The graph of ``source``; :class:`ModelError` if it is none, or a package is missing."""
        return self._loaded(self.function)(source, dims)

    def called(self, source: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Any:
        """A source of this frontend: what ``source`` computes of such arguments."""
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
        "modelcc.frontends.stablehlo",
        "import_stablehlo",
        extra="jax",
        suffixes=(".mlir", ".mlirbc", ".stablehlo", ".jax"),
        magic=(b"ML\xefR",),
        packages=("jax", "jaxlib", "modelcc.frontends.stablehlo"),
    ),
    Frontend(
        "modelcc.frontends.tflite",
        "import_tflite",
        extra="tflite",
        suffixes=(".tflite", ".lite"),
        holds=(4, b"TFL3"),
    ),
)


def frontend_of(source: object) -> Frontend:
    """The frontend that reads ``source``."""
    return next((f for f in FRONTENDS if f.reads(source)), ONNX)
