"""Modules that hold others: Sequential, ModuleList and ModuleDict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, cast, overload

from modelcc.ir.errors import ModelError
from modelcc.nn.branch import TensorBranch
from modelcc.nn.module import Module
from modelcc.tensor.lazy import callers_line


def _module(value: object) -> Module:
    """``value``; :class:`ModelError` if it is not a module."""
    if isinstance(value, Module):
        return value
    raise ModelError(f"a {type(value).__name__} among modules", callers_line(),
                     "give a module; of a function make one with a forward")  # fmt: skip


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        """Of these modules."""
        self.extend(modules)

    def _modules(self) -> dict[str, Module]:
        return {n: v for n, v in self.__dict__.items() if isinstance(v, Module)}

    def append(self, module: Module) -> Self:
        """Appends a module."""
        setattr(self, str(len(self)), _module(module))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Appends modules."""
        for module in modules:
            self.append(module)
        return self

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return type(self)(list(self)[place])
        return list(self)[place]

    def __setitem__(self, place: int, module: Module) -> None:
        setattr(self, list(self._modules())[place], _module(module))

    def __len__(self) -> int:
        return len(self._modules())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules().values())


class Sequential(ModuleList):
    """Modules in sequence, each applied to the result of the previous one.

    They are numbered, or named if passed as a single dict.
    """

    def __init__(self, *modules: Module | Mapping[str, Module] | Iterable[Module]) -> None:
        """Of these modules, or of those in a single dict or list."""
        first = modules[0] if len(modules) == 1 else None
        if isinstance(first, Mapping):
            for name, module in cast("Mapping[str, Module]", first).items():
                setattr(self, name, _module(module))
        elif first is not None and not isinstance(first, TensorBranch):
            self.extend(first)
        else:
            self.extend(cast("tuple[Module, ...]", modules))

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        """Of these modules."""
        for name, module in (modules or {}).items():
            self[name] = module

    def _modules(self) -> dict[str, Module]:
        return {n: v for n, v in self.__dict__.items() if isinstance(v, Module)}

    def __getitem__(self, name: str) -> Any:
        return self._modules()[name]

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, _module(module))

    def __contains__(self, name: str) -> bool:
        return name in self._modules()

    def __len__(self) -> int:
        return len(self._modules())

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules())

    def keys(self) -> Iterable[str]:
        """Their names."""
        return self._modules().keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules().items()
