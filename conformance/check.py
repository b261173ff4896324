"""One case: compiled, run, and compared as in the suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np
from onnx import ModelProto
from onnx.backend.test.runner import Runner

from conformance.cases import Case
from modelcc import driver, onnx_backend
from modelcc.frontends.kit.errors import UnsupportedModel

RANDOM = frozenset({"Bernoulli", "RandomUniformLike", "RandomNormalLike", "Multinomial"})
"""Operators whose results the standard does not define, not even for a seed."""

assert driver  # loaded here, so that forked processes share it

OPTIONAL = MappingProxyType({"ImageDecoder": "PIL"})
"""Operators that need an optional package, by its import name."""

State = Literal["compiled", "specialised", "skipped", "failed"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case; ``reason`` says why it failed or was skipped, ``seconds`` is its
    duration.

    Random numbers, which the standard leaves to each implementation, are compared by type and shape
    only; ``random`` marks them.
    """

    name: str
    kind: str
    state: State
    reason: str = ""
    seconds: float = 0.0
    random: bool = False


def check(case: Case, target: str = "native") -> Outcome:
    """On ``target``: ``compiled`` if one compilation served every data set, ``specialised`` if
    there was one per set of values of small inputs, ``skipped`` if a required package is not
    installed, else ``failed``."""
    loaded = case.load()
    missing = missing_packages(loaded.model)
    if missing:
        return Outcome(case.name, case.kind, "skipped", f"needs {', '.join(missing)}")
    rep, state = _prepared(loaded.model, target)
    outputs = loaded.model.graph.output
    plain = all(o.type.HasField("tensor_type") for o in outputs)
    if plain and isinstance(rep, onnx_backend.CompiledModel):
        wanted = tuple(o.name for o in outputs)
        assert rep.output_names == wanted, f"results are called {rep.output_names}, not {wanted}"
    random = any(node.op_type in RANDOM for node in loaded.model.graph.node)
    for inputs, expected in loaded.data_sets:
        results = list(rep.run(inputs))
        if random:
            assert [*map(_form, results)] == [*map(_form, expected)], (
                "types and shapes of random numbers differ"
            )
        else:
            assert_agree(expected, results, case)
    return Outcome(case.name, case.kind, state, random=random)


def missing_packages(model: ModelProto) -> list[str]:
    """Optional packages that the model's operators need and that are not installed."""
    wanted = {OPTIONAL[n.op_type] for n in model.graph.node if n.op_type in OPTIONAL}
    return sorted(name for name in wanted if find_spec(name) is None)


def _form(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    return array.dtype, array.shape


def assert_agree(expected: Sequence[Any], results: Sequence[Any], case: Case) -> None:
    """Compares as in the suite, and sequences element by element: it does not support scalars in
    them."""
    assert len(expected) == len(results), f"{len(results)} results for {len(expected)}"
    for wanted, found in zip(expected, results, strict=True):
        if isinstance(wanted, list):
            assert isinstance(found, list), f"{type(found).__name__} for a sequence"
            assert_agree(cast("list[Any]", wanted), cast("list[Any]", found), case)
        else:
            Runner.assert_similar_outputs([wanted], [found], case.rtol, case.atol, case.name)


def _prepared(model: ModelProto, target: str) -> tuple[Any, State]:
    prepare = partial(onnx_backend.prepare, model, cache=None, target=target)
    try:
        return prepare(), "compiled"
    except UnsupportedModel:
        return prepare(specialise=True), "specialised"


def attempt(case: Case, target: str = "native") -> Outcome:
    """The outcome, including any exception."""
    try:
        with np.errstate(all="ignore"):
            return check(case, target)
    except Exception as error:  # any fault of the compiler is a result here
        return Outcome(case.name, case.kind, "failed", reason(error))


def reason(error: BaseException) -> str:
    """The type and message of an error, in one line."""
    if isinstance(error, AssertionError):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"wrong result: {'; '.join(lines[:4])}"[:300]
    if isinstance(error, UnsupportedModel):
        nodes = dict.fromkeys(f"{node.operator}: {node.reason}" for node in error.nodes)
        return f"unsupported: {'; '.join(nodes)}"[:400]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]
