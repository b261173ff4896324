"""Containers of tensors in calls: flattened to tensors by name, and rebuilt."""

from __future__ import annotations

import collections
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from typing import Any, TypeGuard

from modelcc.ir.call_form import (
    CallForm,
    DictForm,
    FixedValue,
    Form,
    ListForm,
    ObjectForm,
    steps_of,
    tensors_of,
)
from modelcc.runtime.errors import InputError

_COLLECTIONS: Any = collections  # namedtuple with names known at run time only


def bound(
    name: str, form: CallForm, arguments: Sequence[object], named: Mapping[str, object]
) -> dict[str, object]:
    """Tensors by name, for a call of the model ``name`` with arguments of ``form``.

    Parameters without tensors may be omitted.  InputError locates mismatches, as in
    ``batch['mask']``.
    """
    signature = f"{name}{form}"
    if len(arguments) > len(form.parameters):
        count = f"{len(form.parameters)} arguments"
        raise InputError(name, count, f"{len(arguments)}", f"call {signature}")
    given = dict(zip(form.parameters, arguments, strict=False))
    for parameter, value in named.items():
        if parameter not in form.parameters:
            raise InputError(name, signature, f"'{parameter}'", "check the name")
        if parameter in given:
            raise InputError(parameter, "one value", "two", "give it once")
        given[parameter] = value
    found: dict[str, object] = {}
    for parameter, part in form.parameters.items():
        if parameter in given:
            _take(part, given[parameter], parameter, found)
        elif next(tensors_of(part), None) is not None:
            raise InputError(name, signature, f"no '{parameter}'", "give every argument")
    return found


def _take(form: Form, value: object, path: str, found: dict[str, object]) -> None:
    match form:
        case str():
            if value is None or _is_container(value):
                raise InputError(path, "a tensor", _kind(value), "pass what it was exported with")
            found[form] = value
        case FixedValue(fixed):
            if type(value) is not type(fixed) or value != fixed:
                given = repr(value) if isinstance(value, bool | int | float | str) else _kind(value)
                raise InputError(path, repr(fixed), given, "export the model with another value")
        case _:
            parts = _parts(form, value, path)
            for (step, part), item in zip(steps_of(form), parts, strict=True):
                _take(part, item, path + step, found)


def _parts(form: ListForm | DictForm | ObjectForm, value: Any, path: str) -> Sequence[object]:
    """The children of ``value`` that correspond to the parts of ``form``."""
    match form:
        case ListForm(parts):
            if not _is_list(value) or len(value) != len(parts):
                raise _misfit(form, value, path)
            return value
        case DictForm(keys):
            if not _is_mapping(value) or set(value) != set(keys):
                raise _misfit(form, value, path)
            return [value[key] for key in keys]
        case ObjectForm(_, keys):
            if _is_mapping(value) and value.keys() <= set(keys):
                return [value.get(key) for key in keys]
            if not all(hasattr(value, key) for key in keys):
                raise _misfit(form, value, path)
            return [getattr(value, key) for key in keys]


def _misfit(form: ListForm | DictForm | ObjectForm, value: object, path: str) -> InputError:
    match form:
        case ListForm(parts, is_tuple):
            expected = f"a {'tuple' if is_tuple else 'list'} of {len(parts)}"
        case DictForm(keys):
            expected = f"a dict of {', '.join(map(repr, keys)) or 'nothing'}"
        case ObjectForm(kind, keys):
            expected = f"a {kind.rpartition(':')[2]} with {', '.join(keys) or 'nothing'}"
    return InputError(path, expected, _kind(value), "pass what it was exported with")


def _kind(value: object) -> str:
    if value is None:
        return "None"
    if _is_mapping(value):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"
    if _is_list(value):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def is_tensor(value: object) -> bool:
    """Whether ``value`` may be an input tensor: neither a container nor None."""
    return value is not None and hasattr(value, "__dlpack__")


def _is_container(value: object) -> bool:
    return isinstance(value, list | tuple | dict)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def put_together(form: Form, results: Mapping[str, object]) -> Any:
    """The structure ``form`` filled with ``results``."""
    match form:
        case str():
            return results[form]
        case FixedValue(value):
            return value
        case _:
            parts = [put_together(part, results) for part in form.parts]
    match form:
        case ListForm(_, is_tuple):
            return tuple(parts) if is_tuple else parts
        case DictForm(keys):
            return dict(zip(keys, parts, strict=True))
        case ObjectForm(_, keys):
            return _class_of(form)(**dict(zip(keys, parts, strict=True)))


def _class_of(form: ObjectForm) -> Any:
    """The class of ``form``, if its module is importable; else one with this name and these
    fields."""
    module, _, name = form.kind.rpartition(":")
    found: Any = sys.modules.get(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    if _fits(found, form):
        return found
    short = name.rpartition(".")[2]
    if form.is_tuple:
        return _COLLECTIONS.namedtuple(short, form.keys)
    return make_dataclass(short, form.keys)


def _fits(kind: Any, form: ObjectForm) -> bool:
    if not inspect.isclass(kind):
        return False
    held: Any = kind
    if form.is_tuple:
        return issubclass(kind, tuple) and getattr(held, "_fields", ()) == form.keys
    return is_dataclass(kind) and set(form.keys) <= {f.name for f in fields(kind) if f.init}
