"""A report of which parts of a model compiled by ``torch.compile`` ran where, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._dynamo.utils import counters

from modelcc.frontends.kit.errors import Unsupported
from modelcc.torch.dynamo import BackendRequest, compiled_by
from modelcc.torch.partition import Parted


@dataclass(frozen=True)
class ExplainedGraph:
    """One graph: ``forward``, ``backward`` or ``inference``; operators that modelcc ``compiled``,
    in how many ``parts``, and those that PyTorch runs."""

    kind: str
    compiled: int
    parts: int
    elsewhere: tuple[Unsupported, ...]

    def __str__(self) -> str:
        head = f"{self.kind}: {self.compiled} operators compiled in {self.parts} parts"
        rest = "".join(f"\n  {problem}" for problem in self.elsewhere)
        return f"{head}, {len(self.elsewhere)} run in PyTorch{':' if rest else ''}{rest}"


@dataclass(frozen=True)
class Explanation:
    """All graphs of a model, and Dynamo's reasons for its graph breaks.

    It traces recurrent networks only with ``torch._dynamo.config.allow_rnn``.
    """

    graphs: tuple[ExplainedGraph, ...]
    breaks: tuple[str, ...] = ()

    def __str__(self) -> str:
        none = "Dynamo traced no graph: all of it runs in PyTorch; see torch._dynamo.explain"
        graphs = [str(graph) for graph in self.graphs] or [none]
        return "\n".join([*graphs, *(f"graph break: {reason}" for reason in self.breaks)])


def explain(model: Any, *inputs: Any, **named: Any) -> Explanation:
    """Which parts of ``model`` modelcc compiles, called with these inputs, and which PyTorch runs.

    The model is compiled and called once; if a result has gradients, backward too.
    """
    found: list[ExplainedGraph] = []
    request = BackendRequest({"threads": torch.get_num_threads()}, observer=partial(_note, found))
    compiled = torch.compile(model, backend=partial(compiled_by, request))
    before = {kind: dict(counters[kind]) for kind in _BREAKS}
    result = compiled(*inputs, **named)
    for leaf in torch.utils._pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            _differentiate(model, leaf)
            break
    return Explanation(tuple(found), tuple(dict.fromkeys(_breaks(before))))


_BREAKS = ("graph_break", "unimplemented")
"""Dynamo's counters of graph breaks, and of functions left to PyTorch."""


def _breaks(before: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """New reasons since ``before``, with Dynamo's hints and without its URL."""
    for kind, known in before.items():
        for reason, count in counters[kind].items():
            if count > known.get(reason, 0):
                yield reason.partition("\n\n")[0].strip()


def _differentiate(model: Any, result: torch.Tensor) -> None:
    """Runs backward without storing gradients."""
    leaves = [p for p in model.parameters() if p.requires_grad] if _is_module(model) else []
    if leaves:
        torch.autograd.grad(result.sum(), leaves, allow_unused=True)


def _is_module(model: Any) -> bool:
    return isinstance(model, torch.nn.Module)


def _note(found: list[ExplainedGraph], kind: str, parts: Parted) -> None:
    count = len(parts.parts) or int(parts.whole is not None)
    found.append(ExplainedGraph(kind, parts.compiled, count, parts.problems))
