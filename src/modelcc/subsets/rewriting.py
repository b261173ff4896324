"""Rewrites a model so that a subset supports more of its operators."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.frontends.tflite.module import (
    TfliteModel,
    TfliteOperator,
    TfliteSubgraph,
    TfliteTensor,
)
from modelcc.subsets.draft import Draft
from modelcc.subsets.rewrites import REWRITES
from modelcc.subsets.subset import Subset
from modelcc.subsets.verdict import objections
from modelcc.subsets.view import view_of


@dataclass(frozen=True)
class Rewritten:
    """The model, and the rewrites by subgraph and operator number."""

    model: TfliteModel
    done: dict[tuple[int, int], str]


def rewritten(model: TfliteModel, subset: Subset) -> Rewritten:
    """Replaces each unsupported operator by supported ones, if there is an exact rewrite; a dynamic
    leading extent becomes 1 if the subset requires it to be static."""
    done: dict[tuple[int, int], str] = {}
    subgraphs: list[TfliteSubgraph] = []
    for number, subgraph in enumerate(model.subgraphs):
        pinned = _pinned(subgraph)
        found, words = _changed(pinned if _wants_extents(subgraph, subset) else subgraph, subset)
        done |= {(number, index): text for index, text in words.items()}
        subgraphs.append(found)
    return Rewritten(replace(model, subgraphs=tuple(subgraphs)), done)


def _wants_extents(subgraph: TfliteSubgraph, subset: Subset) -> bool:
    """Whether more operators are supported if the leading extent is static."""
    return _taken(_pinned(subgraph), subset) > _taken(subgraph, subset)


def _taken(subgraph: TfliteSubgraph, subset: Subset) -> int:
    views = (view_of(operator, subgraph) for operator in subgraph.operators)
    return sum(not objections(view, subset)[0] for view in views)


def _pinned(subgraph: TfliteSubgraph) -> TfliteSubgraph:
    return replace(subgraph, tensors=tuple(map(_with_batch, subgraph.tensors)))


def _with_batch(tensor: TfliteTensor) -> TfliteTensor:
    if not tensor.shape or tensor.shape[0] != -1:
        return tensor
    return replace(tensor, shape=(1, *tensor.shape[1:]))


def _changed(subgraph: TfliteSubgraph, subset: Subset) -> tuple[TfliteSubgraph, dict[int, str]]:
    words: dict[int, str] = {}
    operators: list[TfliteOperator] = []
    for operator in subgraph.operators:
        draft, text = _best(operator, subgraph, subset)
        if draft is None:
            operators.append(operator)
            continue
        words[operator.index] = text
        subgraph = replace(subgraph, tensors=(*subgraph.tensors, *draft.tensors))
        operators += draft.operators
    if not words:
        return subgraph, words
    return replace(subgraph, operators=tuple(operators)), words


def _best(
    operator: TfliteOperator, subgraph: TfliteSubgraph, subset: Subset
) -> tuple[Draft | None, str]:
    """The first rewrite with supported operators only; None if the operator is supported, or there
    is none."""
    view = view_of(operator, subgraph)
    if not objections(view, subset)[0]:
        return None, ""
    for rewrite in REWRITES.get(operator.name, ()):
        draft = Draft(view, subgraph)
        if rewrite.apply(draft) and _all_taken(draft, subset):
            return draft, rewrite.words
    return None, ""


def _all_taken(draft: Draft, subset: Subset) -> bool:
    tensors = (*draft.subgraph.tensors, *draft.tensors)
    whole = replace(draft.subgraph, tensors=tensors)
    return not any(objections(view_of(op, whole), subset)[0] for op in draft.operators)
