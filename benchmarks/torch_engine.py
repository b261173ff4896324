"""One engine on one model of the zoo, in a separate process: compiled, then timed on request."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import torch

import modelcc
from benchmarks.busy_time import peak_bytes, reset_peak, seconds_of_call, seconds_with_helpers
from benchmarks.engine_worker import Refused
from benchmarks.processor_level import Native
from benchmarks.zoo.build import build, example
from benchmarks.zoo.catalogue import find
from modelcc.torch import backend

Call = Callable[[], object]


@dataclass(frozen=True)
class Ready:
    """An engine after its first call; ``error`` against eager is relative to the largest output,
    None if the weights differ."""

    cold_seconds: float
    error: float | None


def _eager(model: Any, inputs: Any, native: Native) -> Call:
    return lambda: model(*inputs)


def _inductor(model: Any, inputs: Any, native: Native) -> Call:
    compiled = torch.compile(model)
    return lambda: compiled(*inputs)


def _max_autotune(model: Any, inputs: Any, native: Native) -> Call:
    """With inductor's own freezing: parameters are constants, as in modelcc's columns."""
    options = {"freezing": True, "max_autotune": True, "epilogue_fusion": True}
    compiled = torch.compile(model, options=options)
    return lambda: compiled(*inputs)


def _modelcc(**asked: bool) -> Callable[[Any, Any, Native], Call]:
    def compiled(model: Any, inputs: Any, native: Native) -> Call:
        options = {**asked, **native, "cache": None}
        made = torch.compile(model, backend=backend, options=options)
        return lambda: made(*inputs)

    return compiled


def _exported(model: Any, inputs: Any, native: Native) -> Call:
    made = modelcc.compile(model, inputs, cache=None, **native)
    return lambda: made(*inputs)


ENGINES: Mapping[str, Callable[[Any, Any, Native], Call]] = {
    "eager": _eager,
    "inductor": _inductor,
    "max-autotune": _max_autotune,
    "jax": lambda model, inputs, native: _jax(model, inputs),
    "unfrozen": _modelcc(),
    "modelcc": _modelcc(release=True),
    "exported": _exported,
}
"""Maps a model, its inputs and options of modelcc to a call.  ``modelcc`` is ``torch.compile`` with
``release``, ``unfrozen`` without, ``exported`` is ``torch.export``, whose model is deleted."""


def _jax(name: Any, inputs: Any) -> Call:
    """A JAX counterpart with random weights, if there is one."""
    return import_module("benchmarks.jax_twins").twin(name, inputs)


def _error(actual: Any, wanted: Any) -> float:
    leaves = torch.utils._pytree.tree_leaves
    pairs = zip(leaves(actual), leaves(wanted), strict=True)
    found = [(torch.as_tensor(a) - w).abs().max() / w.abs().max() for a, w in pairs]
    return max(map(float, found))


def serve(connection: Connection, engine: str, name: str, native: Native, cache: str) -> None:
    """Sends :class:`Ready` or :class:`Refused`, then a round's time whenever asked for one; told
    to end, the most memory of the process since it was ready, in bytes."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    threads = native["threads"]
    torch.set_num_threads(threads)
    record = find(name)
    model, inputs = build(record), example(record)
    with torch.no_grad():
        wanted = model(*inputs)
        start = seconds_with_helpers(threads)
        try:
            subject = name if engine == "jax" else model
            del model  # engines that need it hold a reference
            call = ENGINES[engine](subject, inputs, native)
            result = call()
        except Exception as error:  # any engine may raise anything: it is reported, not handled
            connection.send(Refused(f"{type(error).__name__}: {error}".splitlines()[0]))
            return
        cold = seconds_with_helpers(threads) - start
        del subject
        gc.collect()  # exported programs contain reference cycles
        connection.send(Ready(cold, None if engine == "jax" else _error(result, wanted)))
        reset_peak()
        while connection.recv():
            connection.send(seconds_of_call(call, threads))
        connection.send(peak_bytes())
