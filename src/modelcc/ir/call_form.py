"""The calling convention of a model whose arguments and results are containers of tensors.

A program of ``torch.export`` takes and returns lists, dicts and objects; its tensors have names of
their own.  A form gives the position of each tensor; values that are not tensors are those that the
model was traced with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard, TypeVar

Plain: TypeAlias = "bool | int | float | str | None"
Key = TypeVar("Key", str, "str | int")


@dataclass(frozen=True)
class FixedValue:
    """A value that is the same in every call."""

    value: Plain


@dataclass(frozen=True)
class ListForm:
    """A list of ``parts``, or a tuple of them."""

    parts: tuple[Form, ...]
    is_tuple: bool = False


@dataclass(frozen=True)
class DictForm:
    """A dict; ``parts`` are its values, in the order of ``keys``."""

    keys: tuple[str | int, ...]
    parts: tuple[Form, ...]


@dataclass(frozen=True)
class ObjectForm:
    """A dataclass or, if ``is_tuple``, a named tuple, whose fields have the names ``keys``.

    ``kind`` is the path of its class, ``module:name``.
    """

    kind: str
    keys: tuple[str, ...]
    parts: tuple[Form, ...]
    is_tuple: bool = False


Form: TypeAlias = "str | FixedValue | ListForm | DictForm | ObjectForm"
"""A tensor by name, or a container of tensors."""


@dataclass(frozen=True)
class CallForm:
    """``parameters`` in order, by name, and the ``result``."""

    parameters: Mapping[str, Form]
    result: Form

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that a caller passes."""
        return tuple(name for form in self.parameters.values() for name in tensors_of(form))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors in the result."""
        return tuple(tensors_of(self.result))

    @property
    def is_plain(self) -> bool:
        """Whether each parameter is the tensor of its name, and the result a tensor or a tuple."""
        named = all(name == form for name, form in self.parameters.items())
        match self.result:
            case str():
                return named
            case ListForm(parts, True):
                return named and len(parts) > 1 and all(isinstance(p, str) for p in parts)
            case _:
                return False

    def __str__(self) -> str:
        given = (
            name if name == form else f"{name}={form_text(form)}"
            for name, form in self.parameters.items()
        )
        return f"({', '.join(given)}) -> {form_text(self.result)}"


def tensors_of(form: Form) -> Iterator[str]:
    """Names of the tensors in a form, in order."""
    match form:
        case str():
            yield form
        case FixedValue():
            pass
        case _:
            for part in form.parts:
                yield from tensors_of(part)


def paths_of(form: Form, path: str) -> Iterator[tuple[str, str]]:
    """Each tensor of ``form``, which is at ``path``, and its path: ``batch['mask']``."""
    match form:
        case str():
            yield form, path
        case FixedValue():
            pass
        case _:
            for step, part in steps_of(form):
                yield from paths_of(part, path + step)


def steps_of(form: ListForm | DictForm | ObjectForm) -> Iterator[tuple[str, Form]]:
    """The parts of a container, each with the Python text that selects it."""
    match form:
        case ListForm(parts):
            steps = [f"[{n}]" for n in range(len(parts))]
        case DictForm(keys):
            steps = [f"[{key!r}]" for key in keys]
        case ObjectForm(_, keys):
            steps = [f".{key}" for key in keys]
    return zip(steps, form.parts, strict=True)


def form_text(form: Form) -> str:
    """Python-like text of a form, with names of tensors as its leaves."""
    match form:
        case str():
            return form
        case FixedValue(value):
            return repr(value)
        case ListForm(parts, is_tuple):
            inner = ", ".join(map(form_text, parts))
            comma = "," if len(parts) == 1 else ""
            return f"({inner}{comma})" if is_tuple else f"[{inner}]"
        case DictForm(keys, parts):
            pairs = zip(keys, parts, strict=True)
            return "{" + ", ".join(f"{k!r}: {form_text(p)}" for k, p in pairs) + "}"
        case ObjectForm(kind, keys, parts):
            pairs = zip(keys, parts, strict=True)
            inner = ", ".join(f"{k}={form_text(p)}" for k, p in pairs)
            return f"{kind.rpartition(':')[2]}({inner})"


def encoded_call(form: CallForm) -> tuple[object, ...]:
    """Only tuples, strings and numbers, from which :func:`decoded_call` restores the form."""
    given = tuple((name, _encoded(part)) for name, part in form.parameters.items())
    return given, _encoded(form.result)


def decoded_call(value: object) -> CallForm:
    """The inverse of :func:`encoded_call`, where tuples may be lists; TypeError or ValueError for
    other values."""
    given, result = _items(value)
    pairs = [_items(pair) for pair in _items(given)]
    return CallForm({_text(name): _decoded(form) for name, form in pairs}, _decoded(result))


def _encoded(form: Form) -> object:
    match form:
        case str():
            return form
        case FixedValue(value):
            return ("fixed", value)
        case ListForm(parts, is_tuple):
            return ("tuple" if is_tuple else "list", tuple(map(_encoded, parts)))
        case DictForm(keys, parts):
            return ("dict", keys, tuple(map(_encoded, parts)))
        case ObjectForm(kind, keys, parts, is_tuple):
            what = "namedtuple" if is_tuple else "object"
            return (what, keys, tuple(map(_encoded, parts)), kind)


def _decoded(value: object) -> Form:
    if isinstance(value, str):
        return value
    match _items(value):
        case ("fixed", None | bool() | int() | float() | str() as fixed):
            return FixedValue(fixed)
        case ("list" | "tuple" as what, parts):
            return ListForm(tuple(map(_decoded, _items(parts))), what == "tuple")
        case ("dict", keys, parts):
            return DictForm(*_pairs(keys, _key, parts))
        case ("object" | "namedtuple" as what, keys, parts, kind):
            return ObjectForm(_text(kind), *_pairs(keys, _text, parts), what == "namedtuple")
        case _:
            raise ValueError("this is no form of a call")


def _pairs(
    keys: object, read: Callable[[object], Key], parts: object
) -> tuple[tuple[Key, ...], tuple[Form, ...]]:
    names, forms = tuple(map(read, _items(keys))), tuple(map(_decoded, _items(parts)))
    if len(set(names)) != len(names) or len(names) != len(forms):
        raise ValueError("a form of a call has other keys than parts")
    return names, forms


def _items(value: object) -> Sequence[object]:
    if not _is_sequence(value):
        raise TypeError(f"{type(value).__name__} in place of a list")
    return value


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _key(value: object) -> str | int:
    if not isinstance(value, str | int):
        raise TypeError(f"{type(value).__name__} in place of a key")
    return value
