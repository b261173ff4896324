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
        _refuse_tracers(self.model.name, leaves)
        return self.of_leaves(leaves)

    def of_leaves(self, leaves: Sequence[Any]) -> Any:
        """The result for the leaves of ``(args, kwargs)``."""
        pairs = zip(self.kept, self.dtypes, strict=True)
        found: Any = self.model(*(_given(self.model.name, leaves[n], t) for n, t in pairs))
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


def _given(name: str, leaf: Any, dtype: Any) -> Any:
    """A leaf as the model takes it: complex numbers as pairs in a last axis, keys as their data.

    :class:`InputError` if it is of another kind, of which a part would be lost.
    """
    found = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    if found != dtype and not _holds(dtype, found):
        raise InputError(
            name, f"an array of {dtype}", f"one of {found}", "convert it, or compile for its type"
        )
    if _is_key(dtype):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf, dtype)
    if dtype.kind != "c":
        return array
    return np.stack([np.real(array), np.imag(array)], -1)


def _holds(dtype: Any, found: Any) -> bool:
    """Whether ``dtype`` is of the same kind as ``found`` or of one that it is part of."""
    kinds = (np.bool_, np.integer, np.floating, np.complexfloating)
    wanted, given = ([jax.dtypes.issubdtype(t, k) for k in kinds] for t in (dtype, found))
    return any(given) and any(wanted) and given.index(True) <= wanted.index(True)


def _result(array: Any, dtype: Any) -> Any:
    if _is_key(dtype):
        return jax.random.wrap_key_data(array, impl=dtype._impl.name)
    return array.view(dtype)[..., 0] if dtype.kind == "c" else array


def _is_symbolic(leaf: Any) -> bool:
    return any(not isinstance(extent, int) for extent in np.shape(leaf))


def _is_key(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


@dataclass(frozen=True, eq=False)
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
        static = {_from_start(p, len(args)) for p in self.static}
        known = {k: v for k, v in (*enumerate(args), *kwargs.items()) if k in static}
        given = tuple(a for place, a in enumerate(args) if place not in known)
        named = {name: a for name, a in kwargs.items() if name not in known}
        leaves, tree = jax.tree.flatten((given, named))
        _refuse_tracers(self.__name__, leaves)
        wide: bool = jax.config.jax_enable_x64
        key = (tree, wide, frozenset(known.items()), *(_type_of(leaf) for leaf in leaves))
        model = self.models.get(key)
        if model is None:
            function = _Bound(self.function, known) if known else self.function
            model = compile(function, *given, kwspecs=named, **self.options)
            self.models[key] = model
        return model.of_leaves(leaves)


def _from_start(place: int | str, count: int) -> int | str:
    """A place counted from the start, of ``count`` arguments."""
    return place + count if isinstance(place, int) and place < 0 else place


def _refuse_tracers(name: str, leaves: Sequence[Any]) -> None:
    """:class:`InputError` if jax is to transform what is compiled."""
    traced = next((leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer)), None)
    if traced is not None:
        raise InputError(
            name, "arrays", f"{traced}, within a transformation of jax",
            "transform the function before it is compiled: modelcc.jax.jit(jax.grad(f))",
        )  # fmt: skip


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
    donate_argnums: int | Iterable[int] = (),
    donate_argnames: str | Iterable[str] = (),
    **options: Any,
) -> Jitted:
    """``function`` compiled when it is called, as by ``jax.jit``; arguments are pytrees of arrays.

    Those at ``static_argnums``, or of ``static_argnames``, are hashable values instead, and each
    value is compiled for.  Donated arguments may be written to, which they are not.  ``options``
    are those of :func:`modelcc.compile`.  ``ValueError`` for a parameter that is not there.
    """
    _places(function, *_listed(donate_argnums, donate_argnames))
    return Jitted(function, options, _places(function, *_listed(static_argnums, static_argnames)))


def _listed(
    places: int | Iterable[int], names: str | Iterable[str]
) -> tuple[Sequence[int], Sequence[str]]:
    return (
        (places,) if isinstance(places, int) else tuple(places),
        (names,) if isinstance(names, str) else tuple(names),
    )


def _places(
    function: Callable[..., Any], places: Sequence[int], names: Sequence[str]
) -> frozenset[int | str]:
    """The places and the names of the parameters that are given by either.

    A place is negative if it counts from the end of arguments whose number is open.
    """
    if not (places or names):
        return frozenset()
    found = inspect.signature(function).parameters.values()
    kinds = {p.kind for p in found}
    own = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        odd = [p for p in places if not -len(own) <= p < len(own)]
        if odd:
            raise ValueError(f"there is no argument {odd[0]}: the function takes {len(own)}")
        places = [p % len(own) for p in places]
    odd = [n for n in names if all(n != p.name for p in found)]
    if odd and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise ValueError(f"the function has no parameter {odd[0]!r}")
    both = (own[p] for p in places if 0 <= p < len(own))
    return frozenset({*places, *(own.index(n) for n in names if n in own), *names, *both})
