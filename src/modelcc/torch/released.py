"""Parameters whose elements compiled code keeps, and PyTorch no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from modelcc.heap import release_heap
from modelcc.ir.errors import ModelError

_OF_SHAPE = frozenset(
    {"dim", "element_size", "is_complex", "is_floating_point", "numel", "size", "stride"}
)
"""Methods that look at no element."""


class ReleasedParameter(torch.nn.Parameter):
    """A parameter without memory: it has a type and a shape, and no elements.

    PyTorch's guards are met, and a program that computes with it is told why it cannot.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", str(func))
        if name != "__get__" and name not in _OF_SHAPE:
            raise ModelError(
                f"{name} of a parameter that was released when its model was compiled", (),
                "call the compiled model with inputs of the sizes and types that it was compiled"
                " for, or compile it without 'release'",
            )  # fmt: skip
        parent: Any = super()
        return parent.__torch_function__(func, types, args, kwargs or {})

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"ReleasedParameter({tuple(self.shape)}, {self.dtype})"


def release(tensors: Iterable[torch.Tensor]) -> None:
    """Take the elements from those of ``tensors`` that are parameters.

    Their memory is freed as soon as no other tensor is in it.
    """
    given: Iterable[Any] = tensors
    for tensor in given:
        if type(tensor) is torch.nn.Parameter:
            form = tensor.shape, tensor.stride()
            empty = torch.empty_strided(*form, dtype=tensor.dtype, device=tensor.device)
            empty.untyped_storage().resize_(0)
            tensor.data = empty
            tensor.__class__ = ReleasedParameter
    release_heap()
