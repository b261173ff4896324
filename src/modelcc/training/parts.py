"""Parts of a model: parameters and other tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from modelcc.ir.errors import ModelError
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import is_leaf, like, paths


@runtime_checkable
class Layered(Protocol):
    """A model that declares which of its tensors are trained, as modules do."""

    def parameters(self) -> dict[str, Tensor]:
        """Tensors that are trained, by path."""
        ...

    def frozen_parameters(self) -> dict[str, Tensor]:
        """Parameters that are not trained, by path."""
        ...

    def buffers(self) -> dict[str, Tensor]:
        """Tensors that are not parameters, by path."""
        ...

    def with_parameters(self, tensors: Mapping[str, Tensor]) -> Self:
        """A copy with its parameters replaced."""
        ...

    def with_buffers(self, tensors: Mapping[str, Tensor]) -> Self:
        """A copy with its buffers replaced."""
        ...

    def eval(self) -> Self:
        """Switch to inference mode."""
        ...


@dataclass(frozen=True)
class ModelParts:
    """The tensors of ``model`` by path: ``params`` are trained, ``frozen`` are not, and the model
    itself may update ``buffers``."""

    model: Any
    params: dict[str, Tensor]
    frozen: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors."""
        return {**self.params, **self.frozen, **self.buffers}

    def hollow(self) -> ModelParts:
        """The same without contents: types suffice to build programs."""
        blank = {path: Tensor.placeholder(path, x.type) for path, x in self.tensors.items()}
        return parts_of(self.rebuilt(blank))

    def buffers_of(self, model: Any) -> dict[str, Tensor]:
        """The buffers of a copy of the model; :class:`ModelError` if one is missing."""
        found = model.buffers() if isinstance(model, Layered) else dict(paths(model))
        lost = [path for path in self.buffers if path not in found]
        if lost:
            raise ModelError(f"the loss takes the buffer {lost[0]!r} from the model")
        return {path: found[path] for path in self.buffers}

    def rebuilt(self, tensors: Mapping[str, Tensor]) -> Any:
        """A copy of the model with all of its tensors replaced."""
        if not isinstance(self.model, Layered):
            return like(self.model, iter([tensors[path] for path, _ in paths(self.model)]))
        weights = {path: tensors[path] for path in (*self.params, *self.frozen)}
        buffers = {path: tensors[path] for path in self.buffers}
        return self.model.with_parameters(weights).with_buffers(buffers)


def parts_of(model: Any) -> ModelParts:
    """The parts of a module, or of a tree of tensors, whose floats are all parameters.

    :class:`ModelError` if there is nothing to train.
    """
    if isinstance(model, Layered):
        found = ModelParts(model, model.parameters(), model.frozen_parameters(), model.buffers())
    else:
        found = ModelParts(model, {}, {}, {}) if is_leaf(model) else _of_tree(model)
    if not found.params:
        hint = "unfreeze some" if found.frozen else "give a module, or a dict of tensors"
        raise ModelError(f"a {type(model).__name__} has no parameters to train", (), hint)
    return found


def _of_tree(model: Any) -> ModelParts:
    tensors = {path: x if isinstance(x, Tensor) else Tensor(x) for path, x in paths(model)}
    params = {path: x for path, x in tensors.items() if x.dtype.is_float}
    return ModelParts(model, params, {}, {p: x for p, x in tensors.items() if p not in params})


def in_use(model: Any) -> Any:
    """``model``, an unshared copy, in inference mode."""
    return model.eval() if isinstance(model, Layered) else model
