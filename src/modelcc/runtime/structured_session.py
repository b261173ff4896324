"""Sessions of models whose arguments and results are containers of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from modelcc.artifact.file import Artifact
from modelcc.ir.call_form import CallForm, DictForm, paths_of
from modelcc.runtime.arguments import ordered
from modelcc.runtime.call_trees import bound, is_tensor, put_together
from modelcc.runtime.errors import InputError
from modelcc.runtime.loader import NativeCode
from modelcc.runtime.session import NamedOuts, Outs
from modelcc.runtime.values import ValueSession


class StructuredSession(ValueSession):
    """A session called with arguments of the model's form, or with its tensors by name.

    Tensors alone, as many as the model has, are taken in order.  Calls return results in their
    form, :meth:`run` by name.
    """

    def __init__(
        self, artifact: Artifact, form: CallForm, threads: int = 1, code: NativeCode | None = None
    ) -> None:
        """As for :class:`ValueSession`; ``form`` is that of the model's interface."""
        super().__init__(artifact, threads, code)
        self._form = form
        self._first = next(iter(form.parameters.values()), None)
        self._given = form.inputs
        self._made = tuple(self._interface.outputs)
        self._paths = {
            name: path
            for parameter, part in form.parameters.items()
            for name, path in paths_of(part, parameter)
            if name != path
        }

    def __call__(self, *arguments: object, out: Outs | None = None, **named: object) -> Any:
        """The model's result, in its form."""
        try:
            found = super().__call__(*self._flat(arguments, named), out=out)
        except InputError as error:
            raise self._placed(error) from None
        results = (found,) if len(self._made) == 1 else found
        return put_together(self._form.result, dict(zip(self._made, results, strict=True)))

    def run(self, feeds: Mapping[str, object], out: NamedOuts | None = None) -> dict[str, Any]:
        """Outputs by name, for parameters or tensors by name; otherwise as
        :class:`ValueSession`."""
        if feeds.keys() <= self._names or not feeds.keys() <= self._form.parameters.keys():
            return super().run(feeds, out)
        try:
            return super().run(bound(self.manifest.name, self._form, (), feeds), out)
        except InputError as error:
            raise self._placed(error) from None

    def _flat(self, arguments: tuple[object, ...], named: Mapping[str, object]) -> tuple[Any, ...]:
        """The model's tensors in order."""
        if not named and len(arguments) == len(self._given) and all(map(is_tensor, arguments)):
            return arguments
        if arguments and self._is_by_name(arguments[0]):
            first = arguments[0]
            return self._flat(arguments[1:], {**first, **named})
        if not named.keys() <= self._form.parameters.keys() and named.keys() <= self._names:
            return ordered(self._values, arguments, named)
        known = bound(self.manifest.name, self._form, arguments, named)
        return tuple(known[name] for name in self._given)

    def _is_by_name(self, value: object) -> TypeGuard[dict[str, object]]:
        """Whether a first argument is a dict of arguments by name, rather than the first argument
        itself."""
        if not _is_dict(value) or not value:
            return False
        keys = value.keys()
        own = isinstance(self._first, DictForm) and keys == set(self._first.keys)
        return not own and keys <= {*self._given, *self._form.parameters}

    def _placed(self, error: InputError) -> InputError:
        """``error``, which names tensors, with their paths in the arguments."""
        where, expected = error.where, error.expected
        for name, path in self._paths.items():
            where = where.replace(f"input '{name}'", path)
            expected = expected.replace(f"'{name}' axis", f"{path} axis")
        return InputError(where, expected, error.given, error.remedy)


def _is_dict(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)
