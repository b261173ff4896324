"""One model by one way: compiled, run, and compared with eager execution."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves

import modelcc
from conformance.torch_models.entries import Entry, NotBuilt, randomised
from conformance.torch_models.outcome import (
    COMPILE,
    EXPORT,
    NOT_BUILT,
    PASSED,
    REFUSED,
    TOLERANCE,
    Outcome,
)
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.torch import import_exported
from modelcc.ir.errors import ModelError
from modelcc.torch.dynamo import BackendRequest, compiled_by
from modelcc.torch.partition import Parted

DRAWN = 1
"""The seed of random numbers that a model draws when called."""


class Flat(torch.nn.Module):
    """A model whose results are the floating-point tensors among its outputs."""

    def __init__(self, model: torch.nn.Module, kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self._names = model, tuple(kwargs)

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        found = tree_leaves(self.model(**dict(zip(self._names, tensors, strict=True))))
        return [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]


@dataclass(frozen=True)
class Case:
    """A model with inputs and the results of eager execution."""

    entry: Entry
    module: torch.nn.Module
    inputs: Sequence[torch.Tensor]
    expected: Sequence[torch.Tensor]


def outcomes(entry: Entry, note: Callable[[Outcome], None]) -> None:
    """Calls ``note`` with the model's outcome by each way, one after the other."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        case = _case(entry)
        if isinstance(case, str):
            for way in WAYS:
                note(Outcome(entry.name, entry.kind, way, f"{NOT_BUILT}: {case}"))
            return
        for way, attempt in WAYS.items():
            note(_attempted(case, way, attempt))


def _case(entry: Entry) -> Case | str:
    torch.manual_seed(0)
    try:
        model, kwargs = entry.build()
        module, inputs = Flat(randomised(model), kwargs), tuple(kwargs.values())
        torch.manual_seed(DRAWN)
        return Case(entry, module, inputs, module(*inputs))
    except NotBuilt as error:
        return str(error)
    except Exception as error:  # models may reject configurations in any way
        return f"{type(error).__name__}: {_line(error)}"


def _attempted(case: Case, way: str, attempt: Callable[[Case], Outcome]) -> Outcome:
    made = partial(Outcome, case.entry.name, case.entry.kind, way)
    try:
        return attempt(case)
    except _Refused as error:
        return made(f"{REFUSED}: {error}")
    except BackendCompilerFailed as error:  # ours, as Dynamo wraps it
        return made(_failure(error.inner_exception))
    except TorchDynamoException as error:  # before any backend is called
        return made(f"{REFUSED}: {_line(error)}")
    except Exception as error:  # a crash is an outcome
        return made(_failure(error))


def _failure(error: Exception) -> str:
    """The reason, for an error that is not one of PyTorch's compilers."""
    if isinstance(error, UnsupportedModel):
        kinds = dict.fromkeys(f"{n.operator} ({n.reason})" for n in error.nodes)
        return f"unsupported: {'; '.join(kinds)}"
    if isinstance(error, ModelError):
        return f"refused: {_line(error)}"
    return f"crash: {type(error).__name__}: {_line(error)}"


class _Refused(Exception):  # noqa: N818 - no error of ours
    """PyTorch cannot export the model."""


def _exported(case: Case) -> Outcome:
    try:
        program = torch.export.export(case.module, tuple(case.inputs), strict=False)
    except Exception as error:
        raise _Refused(_line(error)) from error
    start = time.process_time()
    graph = import_exported(program)
    net = modelcc.compile(graph, cache=None, threads=1)
    seconds = time.process_time() - start
    feeds = zip((spec.name for spec in net.inputs), case.inputs, strict=True)
    found = net.run({name: x.numpy() for name, x in feeds}).values()
    ours = [torch.from_numpy(x) for x in found]
    reason, error = compared(ours, case.expected)
    name, kind = case.entry.name, case.entry.kind
    return Outcome(name, kind, EXPORT, reason, error, seconds, len(graph.nodes))


def _compiled(case: Case) -> Outcome:
    parts: list[Parted] = []
    request = BackendRequest(
        {"threads": 1, "cache": None}, observer=lambda _, part: parts.append(part)
    )
    torch.compiler.reset()  # else sizes that differ from another model's become dynamic
    counters.clear()
    torch.manual_seed(DRAWN)
    start = time.process_time()
    found = torch.compile(case.module, backend=partial(compiled_by, request))(*case.inputs)
    seconds = time.process_time() - start
    reason, error = compared(found, case.expected)
    elsewhere = sorted({problem.operator for part in parts for problem in part.problems})
    return Outcome(
        case.entry.name, case.entry.kind, COMPILE, reason, error, seconds,
        sum(part.compiled for part in parts), sum(counters["graph_break"].values()),
        elsewhere,
    )  # fmt: skip


WAYS: Mapping[str, Callable[[Case], Outcome]] = {EXPORT: _exported, COMPILE: _compiled}


def compared(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> tuple[str, float]:
    """The reason, and the largest difference relative to the largest element of a result."""
    worst = 0.0
    for mine, yours in zip(ours, theirs, strict=True):
        if mine.shape != yours.shape:
            return f"wrong: shape {tuple(mine.shape)}, not {tuple(yours.shape)}", 0.0
        if not yours.numel():
            continue
        if not torch.equal(mine.isfinite(), yours.isfinite()):
            return "wrong: other elements are infinite", float("inf")
        a, b = mine[yours.isfinite()].double(), yours[yours.isfinite()].double()
        if b.numel():
            worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return (PASSED if worst <= TOLERANCE else f"wrong: error {worst:.1e}"), worst


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
