"""Functions of tensors as graphs: traced once, compiled, and called like the function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from inspect import Parameter, Signature, signature
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.model import Model
from modelcc.tensor.declared import Graph
from modelcc.tensor.evaluation import results_of
from modelcc.tensor.lazy import FREE, callers_line
from modelcc.tensor.spec import Input
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import ChangingBranch, TreeBranch, flatten, like, paths


@dataclass(frozen=True)
class TracedFunction:
    """A function as a graph, and what it returned: a tree of tensors without contents."""

    graph: Graph
    result: Any


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    """The graph of ``function`` of arguments like these: trees of tensors, arrays, ``Input``.

    Inputs are named after the function's parameters (``params.weight`` in a tree), outputs
    ``output`` or by their paths in the result.  Values of other kinds are passed unchanged.
    :class:`~modelcc.tensor.lazy.TracingError` where Python asks for the contents of a tensor.
    """
    return traced(function, args, kwargs).graph


def traced(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TracedFunction:
    """As :func:`trace`, with what ``function`` returned."""
    if isinstance(function, TreeBranch):  # its own tensors must not keep traced values
        function = like(function, iter(flatten(function)[0]))
    graph = Graph(getattr(function, "__name__", "main"))
    names = _parameters(function, len(args))
    given = [_inputs(graph, name, value) for name, value in zip(names, args, strict=True)]
    named = {name: _inputs(graph, name, value) for name, value in kwargs.items()}
    result = function(*map(_plain, given), **{name: _plain(v) for name, v in named.items()})
    for place, leaf in paths(result, "output"):
        graph.output(leaf if isinstance(leaf, Tensor) else Tensor(leaf), place)
    return TracedFunction(graph, result)


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """Names of the positional arguments."""
    try:
        names = list(signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"arg{i}" for i in range(count)]


def _inputs(graph: Graph, name: str, tree: Any) -> Any:
    """``tree`` with inputs of ``graph`` in place of its leaves."""
    made: list[Tensor] = []
    for place, leaf in paths(tree, name):
        if isinstance(leaf, Input):
            made.append(graph.input(place, leaf.shape, leaf.dtype))
        else:
            type = leaf.type if isinstance(leaf, Tensor) else Tensor(leaf).type
            made.append(graph.input(place, type.static_shape(), type.dtype))
    return like(tree, iter(made))


@dataclass(frozen=True)
class Static:
    """An argument that is fixed in a trace."""

    value: Hashable
    kind: type  # 1 and True are equal


def _static(name: str, value: Any) -> Static:
    try:
        hash(value)
    except TypeError as error:
        raise ModelError(
            f"the static argument {name!r} is a {type(value).__name__}, which has no hash",
            callers_line(),
            "pass a number, a text, a tuple or a frozen dataclass",
        ) from error
    return Static(value, value.__class__)


def _plain(value: Any) -> Any:
    if not isinstance(value, Static):
        return value
    inner: Any = value.value
    return inner


@dataclass
class CompiledFunction:
    """A function that is compiled for each structure, shapes and types of its arguments.

    ``static`` are parameters whose values are fixed, ``shapes`` extents of others, or of their
    parts, some of which are named.  ``models`` are the compiled models so far.
    """

    function: Callable[..., Any]
    options: Mapping[str, Any]
    static: frozenset[str] = frozenset()
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict[str, Any])
    models: dict[Hashable, tuple[Model, Any]] = field(default_factory=dict[Hashable, Any])

    def __post_init__(self) -> None:
        update_wrapper(self, self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; inside of another traced function, it is traced with that."""
        names = _parameters(self.function, len(args)) if self.static or self.shapes else ()
        if self.static:
            args = tuple(map(self._fixed, names, args))
            kwargs = {name: self._fixed(name, value) for name, value in kwargs.items()}
        leaves, form = flatten((args, kwargs))
        if any(isinstance(leaf, Tensor) and leaf.phase != FREE for leaf in leaves):
            named = {name: _plain(value) for name, value in kwargs.items()}
            return self.function(*map(_plain, args), **named)
        tensors = [leaf if isinstance(leaf, Tensor) else Tensor(leaf) for leaf in leaves]
        types: Sequence[Any] = [tensor.type for tensor in tensors]
        if self.shapes:
            types = self._declared(args, kwargs, names, tensors)
        key = (form, *types)
        found = self.models.get(key)
        if found is None:
            found = self._compiled(*like((args, kwargs), iter(types if self.shapes else leaves)))
            self.models[key] = found
        model, result = found
        arrays = results_of(model, [tensor.numpy() for tensor in tensors])
        return like(result, map(Tensor.of_array, arrays))

    def _fixed(self, name: str, value: Any) -> Any:
        return _static(name, value) if name in self.static else value

    def _declared(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        names: Sequence[str],
        tensors: Sequence[Tensor],
    ) -> list[Input]:
        """Types of the inputs; :class:`ModelError` for a tensor that does not fit its shape."""
        trees = (*zip(names, args, strict=True), *kwargs.items())
        places = [place for name, tree in trees for place, _ in paths(tree, name)]
        unknown = [p for p in self.shapes if p not in places]
        if unknown:
            raise ModelError(f"{unknown[0]!r} has a shape, and is none of {', '.join(places)}")
        return list(map(self._input, places, tensors))

    def _input(self, place: str, tensor: Tensor) -> Input:
        shape = self.shapes.get(place, tensor.type.static_shape())
        numbers = [
            w if isinstance(w, int) else e for w, e in zip(shape, tensor.shape, strict=False)
        ]
        if len(shape) != tensor.ndim or tuple(numbers) != tensor.shape:
            declared = ", ".join(map(str, shape))
            raise ModelError(f"{place!r} is declared [{declared}], and given as {tensor.type}")
        return Input(tuple(shape), tensor.dtype)

    def _compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Model, Any]:
        found = traced(self.function, args, kwargs)
        return found.graph.compile(**self.options), found.result


@dataclass
class CompiledBranch:
    """A module that is compiled when called; ``branch`` is the module itself."""

    branch: ChangingBranch
    function: CompiledFunction

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result; tensors that the call replaces are replaced in it."""
        result, changed = self.function(self.branch, *args, **kwargs)
        self.branch.replace_tensors(changed)
        return result


def _as_function(branch: ChangingBranch) -> Callable[..., Any]:
    """A function that returns a branch's result, and tensors that it replaced, by path."""

    def called(own: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        before = {place: id(leaf) for place, leaf in paths(own)}
        result = own(*args, **kwargs)
        return result, {n: leaf for n, leaf in paths(own) if before.get(n) != id(leaf)}

    first = Parameter(type(branch).__name__, Parameter.POSITIONAL_ONLY)
    rest = signature(branch).parameters.values()
    called.__dict__["__signature__"] = Signature([first, *rest])
    return called


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    **options: Any,
) -> Any:
    """``function`` traced and compiled when it is called: a decorator.

    Arguments are trees of tensors, arrays and numbers; flags, strings and None are fixed, and other
    values are traced anew.  So are parameters that are ``static``, whatever they are: Python may
    use their values.  ``shapes`` gives extents of parameters, some by name: the compiled code
    serves all sizes of these (``{"x": ("batch", 784)}``; ``"params.weight"`` is a part of a tree).
    ``options`` are those of :meth:`~modelcc.tensor.declared.Graph.compile`.  A module is compiled
    as a function of its tensors, too, and keeps its own updates.
    """
    if function is None:
        return partial(jit, static=static, shapes=shapes, **options)
    declared = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    if isinstance(function, ChangingBranch):
        called = _as_function(function)
        compiled = CompiledFunction(called, options, frozenset(static), declared)
        return CompiledBranch(function, compiled)
    return CompiledFunction(function, options, frozenset(static), declared)
