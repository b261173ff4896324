"""JAX functions compiled by modelcc: :func:`compile` for given types, :func:`jit` as they come.

>>> import modelcc.jax                                       # doctest: +SKIP
>>> fast = modelcc.jax.jit(predict)                          # doctest: +SKIP
>>> y = fast(params, x)                                      # doctest: +SKIP
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from jax import export

from modelcc.api import compile as compile_source
from modelcc.frontends.stablehlo.frontend import LoweredModule
from modelcc.model import Model
from modelcc.runtime.errors import InputError


@dataclass(frozen=True)
class JaxModel:
    """A compiled function of pytrees: ``model`` takes the ``kept`` leaves of the arguments.

    ``in_tree`` is the structure of ``(args, kwargs)``, ``out_tree`` that of the result; ``dtypes``
    are those of the kept leaves, ``results`` those of the result's.
    """

    model: Model
    in_tree: Any
    out_tree: Any
    kept: tuple[int, ...]
    dtypes: tuple[Any, ...]
    results: tuple[Any, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, of jax arrays; :class:`InputError` says what does not fit."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree:
            raise InputError(self.model.name, str(self.in_tree), str(tree), "pass the same pytree")
        return self.of_leaves(leaves)

    def of_leaves(self, leaves: Sequence[Any]) -> Any:
        """The result for the leaves of ``(args, kwargs)``."""
        pairs = zip(self.kept, self.dtypes, strict=True)
        found: Any = self.model(*(_given(leaves[n], dtype) for n, dtype in pairs))
        results = cast("tuple[Any, ...]", found if isinstance(found, tuple) else (found,))
        made = map(_result, results, self.results)
        return jax.tree.unflatten(self.out_tree, map(jax.numpy.asarray, made))


def compile(
    function: Callable[..., Any],
    *specs: Any,
    kwspecs: Mapping[str, Any] | None = None,
    **options: Any,
) -> JaxModel:
    """``function`` compiled for arguments like ``specs`` and, by keyword, ``kwspecs``.

    Leaves are arrays, numbers or ``jax.ShapeDtypeStruct``, whose dimensions may be symbolic
    (``jax.export.symbolic_shape``): one model serves all their sizes.  ``options`` are those of
    :func:`modelcc.compile`.  :class:`ModelError` names what cannot be compiled, with its line.
    """
    arguments = (specs, dict(kwspecs or {}))
    leaves, tree = jax.tree.flatten(arguments)
    traced = jax.jit(function, keep_unused=True)
    if any(_is_symbolic(leaf) for leaf in leaves):
        exported = export.export(traced, platforms=("cpu",))(*specs, **arguments[1])
        kept = tuple(exported.module_kept_var_idx)
        model = compile_source(exported, **options)
        out_tree, types, results = exported.out_tree, exported.in_avals, exported.out_avals
    else:
        lowered = traced.trace(*specs, **arguments[1]).lower(lowering_platforms=("cpu",))
        kept, name = tuple(range(len(leaves))), getattr(function, "__name__", "model")
        model = compile_source(
            LoweredModule(lowered.compiler_ir("stablehlo"), None, name), **options
        )
        out_tree, types = lowered.out_tree, jax.tree.leaves(lowered.in_avals)
        results = jax.tree.leaves(lowered.out_info)
    given, made = tuple(types[n].dtype for n in kept), tuple(r.dtype for r in results)
    return JaxModel(model, tree, out_tree, kept, given, made)


def _given(leaf: Any, dtype: Any) -> Any:
    """A leaf as the model takes it: complex numbers as pairs in a last axis, keys as their data."""
    if _is_key(dtype):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf, dtype)
    if dtype.kind != "c":
        return array
    return np.stack([np.real(array), np.imag(array)], -1)


def _result(array: Any, dtype: Any) -> Any:
    if _is_key(dtype):
        return jax.random.wrap_key_data(array, impl=dtype._impl.name)
    return array.view(dtype)[..., 0] if dtype.kind == "c" else array


def _is_symbolic(leaf: Any) -> bool:
    return any(not isinstance(extent, int) for extent in np.shape(leaf))


def _is_key(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


@dataclass(frozen=True)
class Jitted:
    """A function that is compiled for each structure, shapes and types of arguments it meets.

    Arguments at the places ``static``, or of these names, are no arrays: it is compiled for each
    of their values.
    """

    function: Callable[..., Any]
    options: Mapping[str, Any]
    static: frozenset[int | str] = frozenset()
    models: dict[Hashable, JaxModel] = field(default_factory=dict[Hashable, JaxModel])

    @cached_property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "model")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        known = {k: v for k, v in (*enumerate(args), *kwargs.items()) if k in self.static}
        given = tuple(a for place, a in enumerate(args) if place not in known)
        named = {name: a for name, a in kwargs.items() if name not in known}
        leaves, tree = jax.tree.flatten((given, named))
        key = (tree, frozenset(known.items()), *(_type_of(leaf) for leaf in leaves))
        model = self.models.get(key)
        if model is None:
            function = _Bound(self.function, known) if known else self.function
            model = compile(function, *given, kwspecs=named, **self.options)
            self.models[key] = model
        return model.of_leaves(leaves)


@dataclass(frozen=True, eq=False)
class _Bound:
    """A function of what is not ``known``, by place or by name; jax hashes functions."""

    function: Callable[..., Any]
    known: Mapping[int | str, Any]

    @cached_property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "model")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rest, count = iter(args), len(args) + sum(isinstance(k, int) for k in self.known)
        whole = [self.known[k] if k in self.known else next(rest) for k in range(count)]
        own = {k: v for k, v in self.known.items() if isinstance(k, str)}
        return self.function(*whole, **own, **kwargs)


def _type_of(leaf: Any) -> Hashable:
    kind = cast("type[Any]", type(leaf))
    return np.shape(leaf), getattr(leaf, "dtype", kind), getattr(leaf, "weak_type", False)


def jit(
    function: Callable[..., Any],
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    **options: Any,
) -> Jitted:
    """``function`` compiled when it is called, as by ``jax.jit``; arguments are pytrees of arrays.

    Those at ``static_argnums``, or of ``static_argnames``, are hashable values instead, and each
    value is compiled for.  ``options`` are those of :func:`modelcc.compile`.
    """
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return Jitted(function, options, _static(function, {*numbers, *names}))


def _static(function: Callable[..., Any], given: set[int | str]) -> frozenset[int | str]:
    """The places and the names of the parameters that are ``given`` by either."""
    if not given:
        return frozenset()
    names = list(inspect.signature(function).parameters)
    places = {p % len(names) if isinstance(p, int) else names.index(p) for p in given}
    return frozenset({*places, *(names[p] for p in places)})
