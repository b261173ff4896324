"""Functions of tensors as graphs: traced once, compiled, and called like the function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from inspect import signature
from typing import Any

from modelcc.model import Model
from modelcc.tensor.declared import Graph
from modelcc.tensor.evaluation import results_of
from modelcc.tensor.lazy import FREE
from modelcc.tensor.spec import Input
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import flatten, like, paths


@dataclass(frozen=True)
class TracedFunction:
    """A function as a graph, and what it returned: a tree of tensors without contents."""

    graph: Graph
    result: Any


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    """The graph of ``function`` of arguments like these: trees of tensors, arrays, ``Input``.

    Inputs are called as the parameters of the function (``params.weight`` in a tree), outputs
    ``output`` or as their places in the result.  Values of other kinds are passed on as they are.
    :class:`~modelcc.tensor.lazy.TracingError` where Python asks for the contents of a tensor.
    """
    return traced(function, args, kwargs).graph


def traced(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TracedFunction:
    """As :func:`trace`, with what ``function`` returned."""
    graph = Graph(getattr(function, "__name__", "main"))
    names = _parameters(function, len(args))
    given = [_inputs(graph, name, value) for name, value in zip(names, args, strict=True)]
    named = {name: _inputs(graph, name, value) for name, value in kwargs.items()}
    result = function(*given, **named)
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
    """``tree`` with inputs of ``graph`` in the places of its leaves."""
    made: list[Tensor] = []
    for place, leaf in paths(tree, name):
        if isinstance(leaf, Input):
            made.append(graph.input(place, leaf.shape, leaf.dtype))
        else:
            type = leaf.type if isinstance(leaf, Tensor) else Tensor(leaf).type
            made.append(graph.input(place, type.static_shape(), type.dtype))
    return like(tree, iter(made))


@dataclass
class CompiledFunction:
    """A function that is compiled for each structure, shapes and types of arguments it meets.

    ``models`` are what was compiled so far.
    """

    function: Callable[..., Any]
    options: Mapping[str, Any]
    models: dict[Hashable, tuple[Model, Any]] = field(default_factory=dict[Hashable, Any])

    def __post_init__(self) -> None:
        update_wrapper(self, self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; inside of another traced function, traced with it."""
        leaves, form = flatten((args, kwargs))
        if any(isinstance(leaf, Tensor) and leaf.phase != FREE for leaf in leaves):
            return self.function(*args, **kwargs)
        tensors = [leaf if isinstance(leaf, Tensor) else Tensor(leaf) for leaf in leaves]
        key = (form, *[tensor.type for tensor in tensors])
        found = self.models.get(key)
        if found is None:
            found = self._compiled(args, kwargs)
            self.models[key] = found
        model, result = found
        arrays = results_of(model, [tensor.numpy() for tensor in tensors])
        return like(result, map(Tensor.of_array, arrays))

    def _compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Model, Any]:
        found = traced(self.function, args, kwargs)
        return found.graph.compile(**self.options), found.result


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``function`` traced and compiled when it is called: a decorator.

    Arguments are trees of tensors, arrays and numbers; flags, texts and None are fixed, and other
    ones are traced anew.  ``options`` are those of :func:`modelcc.compile`.
    """
    if function is None:
        return partial(CompiledFunction, options=options)
    return CompiledFunction(function, options)
