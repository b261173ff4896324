"""Trees of tensors: nested tuples, lists, dicts and objects that declare their parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.tensor.complex_tensor import ComplexTensor
from modelcc.tensor.lazy import Lazy
from modelcc.tensor.promotion import is_complex
from modelcc.tensor.spec import Input


@runtime_checkable
class TreeBranch(Protocol):
    """An object with parts that are trees, such as a layer with its parameters."""

    def tree_parts(self) -> dict[str, Any]:
        """Its parts by name, in a fixed order."""
        ...

    def with_tree_parts(self, parts: Mapping[str, Any]) -> Self:
        """A copy with its parts replaced."""
        ...

    def tree_form(self) -> Hashable:
        """Its form apart from its parts."""
        ...


@runtime_checkable
class ChangingBranch(TreeBranch, Protocol):
    """A branch that replaces its own tensors when it is called, such as a module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What it computes."""
        ...

    def replace_tensors(self, tensors: Mapping[str, Any]) -> None:
        """Replace the tensors at these paths."""
        ...


@dataclass(frozen=True)
class Leaf:
    """The position of a tensor."""


@dataclass(frozen=True)
class Fixed:
    """A value that is not a tensor and is passed unchanged."""

    value: Hashable
    kind: type  # 1 and True are equal


@dataclass(frozen=True)
class Nested:
    """A branch of a tree: its kind, names of its parts and their forms."""

    kind: type
    form: Hashable
    names: tuple[Any, ...]
    parts: tuple[Form, ...]


Form = Leaf | Fixed | Nested
"""The structure of a tree without its tensors."""

LEAF = Leaf()


def flatten(tree: Any) -> tuple[list[Any], Form]:
    """Its leaves (tensors, arrays, numbers) and its form; :class:`ModelError` for other objects."""
    leaves: list[Any] = []
    return leaves, _form(tree, leaves)


def is_leaf(tree: Any) -> bool:
    """Whether ``tree`` is a tensor, an array, a number, or the type of an input; not complex."""
    if isinstance(tree, np.ndarray | np.generic):
        return not is_complex(cast("object", tree))
    return isinstance(tree, Lazy | Input) or type(tree) in (int, float)


def _complex_as_tensor(tree: Any) -> Any:
    """A complex array or number as a tensor; others unchanged."""
    if isinstance(tree, ComplexTensor) or not is_complex(tree):
        return cast("Any", tree)
    array: Any = np.asarray(tree, np.complex64 if type(tree) is complex else None)
    return ComplexTensor[Any](array.real, array.imag)


def _form(tree: Any, leaves: list[Any]) -> Form:
    if is_leaf(tree):
        leaves.append(tree)
        return LEAF
    tree = _complex_as_tensor(tree)
    parts = parts_of(tree)
    if parts is None:
        try:
            hash(tree)
        except TypeError as error:
            raise ModelError(
                f"a {type(tree).__name__} is neither a tensor nor a tree of tensors",
                (),
                "pass tensors, arrays, numbers, or tuples, lists and dicts of these",
            ) from error
        return Fixed(tree, _kind(tree))
    form = tree.tree_form() if isinstance(tree, TreeBranch) else None
    inner = tuple(_form(part, leaves) for part in parts.values())
    return Nested(_kind(tree), form, tuple(parts), inner)


def _kind(value: object) -> type:
    return type(value)


def parts_of(tree: Any) -> dict[Any, Any] | None:
    """The parts of a branch by name; None for leaves."""
    tree = _complex_as_tensor(tree)
    if isinstance(tree, dict):
        return cast("dict[Any, Any]", tree)
    if isinstance(tree, list | tuple):
        items = cast("Sequence[Any]", tree)
        return dict(enumerate(items))
    return tree.tree_parts() if isinstance(tree, TreeBranch) else None


def like(tree: Any, leaves: Iterator[Any]) -> Any:
    """A tree of the form of ``tree`` with other ``leaves``."""
    if is_leaf(tree):
        return next(leaves)
    tree = _complex_as_tensor(tree)
    parts = parts_of(tree)
    if parts is None:
        return tree
    made = {name: like(part, leaves) for name, part in parts.items()}
    if isinstance(tree, dict):
        return made
    if isinstance(tree, TreeBranch):
        return tree.with_tree_parts(made)
    kind: Any = type(cast("object", tree))
    return kind(*made.values()) if hasattr(kind, "_fields") else kind(made.values())


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """``function`` of the leaves of trees of one form, in a tree of that form."""
    columns = [flatten(t)[0] for t in (tree, *others)]
    return like(tree, iter([function(*row) for row in zip(*columns, strict=True)]))


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves with their paths: ``params.layers.0.weight``."""
    if is_leaf(tree):
        yield prefix, tree
    for name, part in (parts_of(tree) or {}).items() if not is_leaf(tree) else ():
        yield from paths(part, f"{prefix}.{name}" if prefix else str(name))
