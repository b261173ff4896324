"""The pytrees of arguments and results of an exported program, in modelcc's own form."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from torch import fx
from torch.export import ExportedProgram, graph_signature
from torch.export.graph_signature import InputKind
from torch.utils import _pytree

from modelcc.ir.call_form import CallForm, DictForm, FixedValue, Form, ListForm, ObjectForm

_ARGUMENTS: Any = graph_signature  # which does not export argument kinds
_DICTS = (dict, OrderedDict, defaultdict)


def call_form(
    program: ExportedProgram, outputs: Sequence[str], results: Sequence[Any]
) -> CallForm | None:
    """The calling convention of ``program``, if its arguments and results are not all tensors.

    ``outputs`` are the names of those ``results`` that are tensors, in order.  None also where an
    argument is a number that may change: its tensors are named anyway.
    """
    signature = program.module_call_graph[0].signature
    inputs = [s.arg for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    kinds = _ARGUMENTS.TensorArgument | _ARGUMENTS.ConstantArgument
    known = all(isinstance(argument, kinds) for argument in inputs)
    if signature is None or not known:
        return None
    given = iter([_argument(argument) for argument in inputs])
    (positional, named), names = signature.in_spec.children(), signature.forward_arg_names
    specs = [*positional.children(), *named.children()]
    labels = names or [f"arg_{n}" for n in range(len(positional.children()))]
    labels = [*labels[: len(positional.children())], *map(str, named.context)]
    parameters = {n: _form(spec, given) for n, spec in zip(labels, specs, strict=True)}
    made = iter(outputs)
    leaves = iter([next(made) if isinstance(r, fx.Node) else FixedValue(r) for r in results])
    found = CallForm(parameters, _form(signature.out_spec, cast("Iterator[Form]", leaves)))
    return None if found.is_plain else found


def _argument(argument: Any) -> Form:
    if isinstance(argument, _ARGUMENTS.TensorArgument):
        return argument.name
    return FixedValue(argument.value)


_TREES: Any = _pytree  # whose types have no parameters


def _form(spec: Any, leaves: Iterator[Form]) -> Form:
    """The form of ``spec``, which consumes its leaves from ``leaves``."""
    if spec.is_leaf():
        return next(leaves)
    parts = tuple(_form(child, leaves) for child in spec.children())
    kind, context = spec.type, spec.context
    if kind in _DICTS:
        keys: Sequence[Any] = context[1] if kind is defaultdict else context
        return DictForm(tuple(keys), parts) if _are_keys(keys) else ListForm(parts)
    if kind is namedtuple:
        return ObjectForm(_place(context), tuple(context._fields), parts, True)
    if kind not in (list, tuple, deque) and is_dataclass(kind):
        return _object(spec, parts) or ListForm(parts)
    return ListForm(parts, kind is tuple)


def _are_keys(keys: Sequence[object]) -> bool:
    return all(type(key) in (str, int) for key in keys)


def _place(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _object(spec: Any, parts: Sequence[Form]) -> ObjectForm | None:
    """A dataclass each of whose children is one of its fields; None if a child is not."""
    marks = [object() for _ in parts]
    flat = _TREES.TreeSpec(spec.type, spec.context, [_TREES.treespec_leaf() for _ in parts])
    made: Any = flat.unflatten(marks)
    held = {f.name: getattr(made, f.name, None) for f in fields(made)}
    places = {id(mark): part for mark, part in zip(marks, parts, strict=True)}
    found = {n: places.get(id(v), FixedValue(None) if v is None else None) for n, v in held.items()}
    taken = sum(id(value) in places for value in held.values())
    if taken < len(parts) or None in found.values():
        return None
    kept = {name: form for name, form in found.items() if form is not None}
    return ObjectForm(_place(spec.type), tuple(kept), tuple(kept.values()))
