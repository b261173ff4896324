"""JAX functions compiled by modelcc: :func:`compile` for given types, :func:`jit` as they come.

>>> import modelcc.jax                                       # doctest: +SKIP
>>> fast = modelcc.jax.jit(predict)                          # doctest: +SKIP
>>> y = fast(params, x)                                      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from jax import export

from modelcc.api import compile as compile_source
from modelcc.frontends.stablehlo.frontend import LoweredModule
from modelcc.ir.errors import ModelError
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
    _refuse_keys(leaves)
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
    """A leaf as the model takes it: complex numbers as pairs in a last axis."""
    array = np.asarray(leaf, dtype)
    if dtype.kind != "c":
        return array
    return np.stack([np.real(array), np.imag(array)], -1)


def _result(array: Any, dtype: Any) -> Any:
    return array.view(dtype)[..., 0] if dtype.kind == "c" else array


def _is_symbolic(leaf: Any) -> bool:
    return any(not isinstance(extent, int) for extent in np.shape(leaf))


def _refuse_keys(leaves: Sequence[Any]) -> None:
    types = (getattr(leaf, "dtype", None) for leaf in leaves)
    if any(t is not None and jax.dtypes.issubdtype(t, jax.dtypes.extended) for t in types):
        hint = "pass jax.random.key_data(key), and wrap it in the function"
        raise ModelError("an argument is a random key, which is no array of numbers", (), hint)


@dataclass(frozen=True)
class Jitted:
    """A function that is compiled for each structure, shapes and types of arguments it meets."""

    function: Callable[..., Any]
    options: Mapping[str, Any]
    models: dict[Hashable, JaxModel] = field(default_factory=dict[Hashable, JaxModel])

    @cached_property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "model")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        key = (tree, *(_type_of(leaf) for leaf in leaves))
        model = self.models.get(key)
        if model is None:
            model = compile(self.function, *args, kwspecs=kwargs, **self.options)
            self.models[key] = model
        return model.of_leaves(leaves)


def _type_of(leaf: Any) -> Hashable:
    kind = cast("type[Any]", type(leaf))
    return np.shape(leaf), getattr(leaf, "dtype", kind), getattr(leaf, "weak_type", False)


def jit(function: Callable[..., Any], **options: Any) -> Jitted:
    """``function`` compiled when it is called, as by ``jax.jit``; arguments are pytrees of arrays.

    ``options`` are those of :func:`modelcc.compile`.
    """
    return Jitted(function, options)
