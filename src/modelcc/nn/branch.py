"""Objects whose attributes are tensors, as branches of trees, and traversals of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Self, cast

from modelcc.ir.errors import ModelError
from modelcc.nn.roles import Role, unmarked
from modelcc.tensor.lazy import Lazy, callers_line
from modelcc.tensor.spec import Input

OWN = ("training", "_roles")
"""Attributes of every branch that are not parts of it."""


class TensorBranch:
    """A :class:`~modelcc.tensor.trees.TreeBranch` of the tensors and branches among its attributes.

    Roles of tensors are stored by attribute name.
    """

    training: bool
    _roles: dict[str, Role]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Without parts, so that ``super().__init__()`` may be omitted."""
        branch = super().__new__(cls)
        branch.__dict__.update({"training": True, "_roles": {}})
        return branch

    def __setattr__(self, name: str, value: Any) -> None:
        value, role = unmarked(value)
        if role is not None:
            self._roles[name] = role
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._roles.pop(name, None)
        object.__delattr__(self, name)

    def tree_parts(self) -> dict[str, Any]:
        """Attributes that are or hold tensors or branches."""
        return {n: v for n, v in self.__dict__.items() if n not in OWN and has_tensors(v)}

    def with_tree_parts(self, parts: Mapping[str, Any]) -> Self:
        """A copy with these parts."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__["_roles"] = dict(self._roles)
        copy.__dict__.update(parts)
        return copy

    def tree_form(self) -> Hashable:
        """Everything except parts: the mode, roles of tensors, and other attributes."""
        fixed = tuple((n, _kind(v), _fixed(n, v)) for n, v in self.settings().items())
        return self.training, tuple(sorted(self._roles.items())), fixed

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with its own tensors, equal at first; shared tensors stay shared."""
        copy = object.__new__(type(self))
        memo[id(self)] = copy
        for name, value in self.__dict__.items():
            copy.__dict__[name] = _copied(value, memo)
        return copy

    def settings(self) -> dict[str, Any]:
        """Attributes without tensors."""
        return {n: v for n, v in self.__dict__.items() if n not in OWN and not has_tensors(v)}

    def roles(self) -> dict[str, Role]:
        """Explicit roles by attribute name."""
        return self._roles

    def role(self, name: str) -> Role:
        """The role of an attribute's tensors."""
        return self._roles.get(name, "buffer")


def has_tensors(value: Any) -> bool:
    """Whether ``value`` is or contains a tensor, a tensor type, or a branch."""
    return isinstance(value, Lazy | Input | TensorBranch) or any(
        map(has_tensors, nested(value).values())
    )


def nested(value: Any) -> dict[Any, Any]:
    """The items of a list, tuple or dict, by index or key; empty for others."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("list[Any]", value)))
    return {}


def joined(path: str, name: object) -> str:
    """The path of ``name`` within ``path``."""
    return f"{path}.{name}" if path else str(name)


def entries(branch: TensorBranch, path: str = "") -> Iterator[tuple[str, Role, Any]]:
    """Path, role and value of each tensor."""
    for name, part in branch.tree_parts().items():
        yield from _entries(part, joined(path, name), branch.role(name))


def _entries(value: Any, path: str, role: Role) -> Iterator[tuple[str, Role, Any]]:
    if isinstance(value, TensorBranch):
        yield from entries(value, path)
    elif isinstance(value, Lazy):
        yield path, role, value
    for name, part in nested(value).items():
        yield from _entries(part, joined(path, name), role)


def branches(value: Any, path: str = "", deep: bool = True) -> Iterator[tuple[str, TensorBranch]]:
    """Branches in ``value`` and their paths, itself first; only direct children unless ``deep``."""
    parts = nested(value)
    if isinstance(value, TensorBranch):
        yield path, value
        parts = value.tree_parts()
    for name, part in parts.items():
        if deep or not isinstance(part, TensorBranch):
            yield from branches(part, joined(path, name), deep)
        else:
            yield joined(path, name), part


Change = Callable[[str, Role, Any], Any]
"""Returns the replacement of the tensor at a path."""


def rebuilt(branch: TensorBranch, change: Change) -> TensorBranch:
    """A copy with changed tensors; a branch shared by several paths stays shared."""
    made: dict[int, TensorBranch] = {}

    def built(value: Any, path: str, role: Role) -> Any:
        if isinstance(value, TensorBranch):
            if id(value) not in made:
                parts = value.tree_parts().items()
                new = {n: built(p, joined(path, n), value.role(n)) for n, p in parts}
                made[id(value)] = value.with_tree_parts(new)
            return made[id(value)]
        if isinstance(value, Lazy):
            return change(path, role, value)
        parts = {n: built(p, joined(path, n), role) for n, p in nested(value).items()}
        if isinstance(value, dict):
            return parts
        if not isinstance(value, list | tuple):
            return value
        kind: Any = type(cast("object", value))
        return kind(*parts.values()) if hasattr(kind, "_fields") else kind(parts.values())

    return cast("TensorBranch", built(branch, "", "buffer"))


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Lazy):
        if id(value) not in memo:
            memo[id(value)] = value.made(
                value.op, value.operands, value.type, value.phase, value.held
            )
        return memo[id(value)]
    if not has_tensors(value) or isinstance(value, TensorBranch):
        return deepcopy(value, memo)
    parts = {name: _copied(part, memo) for name, part in nested(value).items()}
    return parts if isinstance(value, dict) else type(value)(parts.values())


def _fixed(name: str, value: Any) -> Hashable:
    """A comparable value, recursively for lists and dicts."""
    if isinstance(value, list | tuple | dict):
        parts = nested(cast("object", value)).items()
        return tuple((k, _kind(v), _fixed(name, v)) for k, v in parts)
    try:
        hash(value)
    except TypeError as error:
        raise ModelError(
            f"attribute {name!r} is a {type(value).__name__}, which may change unseen",
            callers_line(),
            "make it a tensor, a tuple or a number",
        ) from error
    return value


def _kind(value: object) -> type:
    return type(value)
