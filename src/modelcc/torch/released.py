"""Parameters whose elements are kept by compiled code alone, no longer by PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from modelcc.heap import release_heap
from modelcc.ir.errors import ModelError

_OF_SHAPE = frozenset(
    {"dim", "element_size", "is_complex", "is_floating_point", "numel", "size", "stride"}
)
"""Methods that read no elements."""


class ReleasedParameter(torch.nn.Parameter):
    """A parameter without memory: it has a dtype and a shape, and no elements.

    It satisfies PyTorch's guards; computing with it raises an explanation.
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
    """Frees the elements of those of ``tensors`` that are parameters.

    Their memory is freed as soon as no other tensor shares it.
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
