"""Modules: layers and compositions of layers, as trees of their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import Signature, signature
from typing import Any, Self, cast

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.nn.branch import TensorBranch, branches, entries, has_tensors, rebuilt
from modelcc.nn.roles import Role
from modelcc.nn.state import changed, loaded, suiting
from modelcc.tensor.lazy import Lazy, TracingError, callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten


class _ForwardSignature:
    """The signature of a module for :mod:`inspect`, which names inputs of graphs."""

    def __get__(self, module: Module | None, kind: type[Module]) -> Signature:
        if module is None:
            raise AttributeError("__signature__")
        return signature(module.forward)


class Module(TensorBranch):
    """A function with its own tensors: define ``forward``, and call the module.

    Attributes that are tensors, modules, or lists, tuples and dicts of these are its parts: tensors
    marked as :class:`~modelcc.nn.roles.Parameter` are trained, others are buffers.  A module is a
    tree: ``modelcc.grad`` and ``modelcc.jit`` take it as an argument, and pass a copy with other
    tensors to the function.  ``training`` is the mode of layers such as Dropout.
    """

    __signature__ = _ForwardSignature()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`forward`; errors name the layer, its path and its arguments."""
        try:
            return self.forward(*args, **kwargs)
        except TracingError:
            raise
        except ModelError as error:
            raise located(error, self, args) from error.__cause__

    # --- tensors by name

    def parameters(self) -> dict[str, Tensor]:
        """Trainable tensors by their paths; a shared one by its first."""
        return self._of_roles("parameter")

    def frozen_parameters(self) -> dict[str, Tensor]:
        """Parameters that are not trained, by their paths."""
        return self._of_roles("frozen")

    def buffers(self) -> dict[str, Tensor]:
        """Tensors that are not parameters, by their paths: statistics, random keys."""
        return self._of_roles("buffer", "transient")

    def _of_roles(self, *roles: Role) -> dict[str, Tensor]:
        found: dict[int, tuple[str, Tensor]] = {}
        for path, role, tensor in entries(self):
            if role in roles:
                found.setdefault(id(tensor), (path, tensor))
        return dict(found.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers under PyTorch's names."""
        return {path: tensor for path, role, tensor in entries(self) if role != "transient"}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Loads tensors by name, also PyTorch's and arrays, converted to this module's dtypes.

        :class:`ModelError` lists names that are missing or unknown, unless not ``strict``, and
        shapes that differ.
        """
        self.replace_tensors(loaded(type(self).__name__, self.state_dict(), state, strict))

    def with_parameters(self, tensors: Mapping[str, Tensor]) -> Self:
        """A copy with these tensors in place of parameters, frozen ones included, of the same
        types."""
        return self._with(tensors, "parameter", "frozen")

    def with_buffers(self, tensors: Mapping[str, Tensor]) -> Self:
        """A copy with these tensors in place of buffers of the same types."""
        return self._with(tensors, "buffer", "transient")

    def _with(self, tensors: Mapping[str, Tensor], *roles: Role) -> Self:
        own = {path: t for path, role, t in entries(self) if role in roles}
        given = suiting(type(self).__name__, own, tensors)
        return cast("Self", rebuilt(self, changed(own, given)))

    def replace_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the tensors at these paths."""
        own = {path: tensor for path, _, tensor in entries(self)}
        by_tensor = {id(own[path]): tensor for path, tensor in tensors.items()}
        copy = rebuilt(self, lambda path, _, tensor: by_tensor.get(id(tensor), tensor))
        pairs = zip(branches(self), branches(copy), strict=True)
        for (_, ours), (_, theirs) in pairs:
            parts = theirs.tree_parts().items()
            ours.__dict__.update({n: v for n, v in parts if not any(branches(v))})

    # --- modules and modes

    def modules(self) -> dict[str, TensorBranch]:
        """This module, whose path is empty, and all its descendants by their paths."""
        return dict(branches(self))

    def children(self) -> Iterator[Any]:
        """Direct submodules."""
        return (module for path, module in branches(self, deep=False) if path)

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, recursively."""
        for _, module in branches(self):
            module.training = mode
        return self

    def eval(self) -> Self:
        """Sets inference mode: no dropout, fixed statistics."""
        return self.train(False)

    def freeze(self, *paths: str) -> Self:
        """Freezes the parameters at or below ``paths``; without paths all."""
        return self._reassigned("parameter", "frozen", paths)

    def unfreeze(self, *paths: str) -> Self:
        """Unfreezes the parameters at or below ``paths``; without paths all."""
        return self._reassigned("frozen", "parameter", paths)

    def _reassigned(self, old: Role, new: Role, paths: tuple[str, ...]) -> Self:
        met: set[str] = set()
        for place, module in branches(self):
            for name, role in list(module.roles().items()):
                path = f"{place}.{name}" if place else name
                chosen = {p for p in paths if path == p or path.startswith(f"{p}.")}
                met |= chosen
                if role == old and (chosen or not paths):
                    module.roles()[name] = new
        unknown = [p for p in paths if p not in met]
        if unknown:
            message = f"{type(self).__name__} has no parameters at {', '.join(unknown)}"
            raise ModelError(message, callers_line(), "modules() has the paths of all modules")
        return self

    def initialize(self, seed: int | np.random.Generator) -> Self:
        """Re-initialises all parameters, and random keys, reproducibly for a seed.

        Dtypes are kept.

        :class:`ModelError` for a module with parameters of its own and no ``reset_parameters``.
        """
        rng = np.random.default_rng(seed)
        types = {path: tensor.type.dtype for path, _, tensor in entries(self)}
        for path, module in branches(self):
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                roles = dict(module.roles())
                reset(rng)
                module.roles().update(roles)  # frozen ones stay frozen
            elif not {"parameter", "frozen"}.isdisjoint(module.roles().values()):
                where = (*callers_line(), *([path] if path else []))
                message = f"{type(module).__name__} does not say how its parameters are drawn"
                raise ModelError(message, where, "define reset_parameters(self, rng)")
        drawn = {path: tensor for path, _, tensor in entries(self)}
        self.replace_tensors({p: t.cast(types[p]) for p, t in drawn.items() if p in types})
        return self

    def astype(self, dtype: Any) -> Self:
        """Converts this module's floats to ``dtype``."""
        to = named_type(dtype)
        tensors = {path: t.cast(to) for path, _, t in entries(self) if t.type.dtype.is_float}
        self.replace_tensors(tensors)
        return self

    # --- text

    def extra_repr(self) -> str:
        """Its settings, for the representation."""
        shown = {n: v for n, v in self.settings().items() if not n.startswith("_")}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def __repr__(self) -> str:
        name = type(self).__name__
        lines = [f"({path}): {module!r}" for path, module in branches(self, deep=False) if path]
        if not lines:
            return f"{name}({self.extra_repr()})"
        inner = "\n".join(lines).replace("\n", "\n  ")
        return f"{name}(\n  {inner}\n)"


class LayerError(ModelError):
    """An error in a layer: ``layer`` is its path in the outermost module that was called."""

    layer: str
    described: str
    line: tuple[str, ...]
    rest: tuple[str, ...]
    identity: int


def located(error: ModelError, module: TensorBranch, args: Sequence[Any]) -> LayerError:
    """``error`` located in ``module``, or in a submodule that has been located already."""
    if not isinstance(error, LayerError):
        line = error.where[:1] if error.where else callers_line()
        given = ", ".join(_described(argument) for argument in args)
        described = f"{_signature(module)} of {given}"
        return _made(error, module, "", described, line, error.where[1:])
    name = next((p for p, m in branches(module, deep=False) if id(m) == error.identity), "")
    path = ".".join(part for part in (name, error.layer) if part)
    return _made(error, module, path, error.described, error.line, error.rest)


def _made(
    error: ModelError, module: TensorBranch, path: str, described: str, line: tuple[str, ...],
    rest: tuple[str, ...],
) -> LayerError:  # fmt: skip
    whole = type(module).__name__
    layer = f"{path} of the {whole}: {described}" if path else described
    made = LayerError(error.message, (*line, layer, *rest), error.hint)
    made.layer, made.described, made.line, made.rest = path, described, line, rest
    made.identity = id(module)
    return made


def _signature(module: TensorBranch) -> str:
    text = repr(module)
    return text if "\n" not in text else type(module).__name__


def _described(argument: Any) -> str:
    """The type of a tensor, types of all in a tree, and other values unchanged."""
    if isinstance(argument, Lazy):
        return str(argument.type)
    if not has_tensors(argument):
        return f"{type(argument).__name__}" if hasattr(argument, "shape") else repr(argument)
    return f"({', '.join(_described(leaf) for leaf in flatten(argument)[0])})"
