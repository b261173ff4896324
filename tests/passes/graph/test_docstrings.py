"""Every graph pass does what the example in its docstring shows, and keeps its meaning."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from modelcc.ir.graph_text import print_graph
from modelcc.passes import graph as package
from modelcc.passes.pass_base import pass_text
from tests.passes.graph.examples import assert_same_meaning, example_of, shape_of


def passes() -> list[type[Any]]:
    found: list[type[Any]] = []
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        found += [
            c
            for c in vars(module).values()
            if isinstance(c, type) and c.__module__ == module.__name__ and "__call__" in vars(c)
        ]
    return [step for step in found if step.__name__ not in WRAPPERS]


WRAPPERS = {"InBodies": "test_bodies.py", "CountedInBodies": "test_bodies.py"}
"""Passes that run others, and the tests they have instead."""

NEEDED = {"MergeGroups": {"block": 16}}
"""What a target says of its machine, which passes have no defaults for."""

ROUNDED = {"LowerPrecision": 2e-2}
"""Passes that are asked to round, and how far results may be off."""

PASSES = passes()


def made(step: type[Any], **others: Any) -> Any:
    """The pass, as a target makes it."""
    return step(**NEEDED.get(step.__name__, {}), **others)


@pytest.mark.parametrize("step", PASSES, ids=lambda c: c.__name__)
def test_example(step: type[Any]) -> None:
    example = example_of(step)
    result = made(step)(example.before)
    assert_same_meaning(example.before, result, ROUNDED.get(step.__name__, 1e-5))
    assert shape_of(result) == shape_of(example.after)
    assert len(result.nodes) == len(example.after.nodes)
    assert result.dims == example.after.dims
    assert sorted(str(c.type) for c in result.constants.values()) == sorted(
        str(c.type) for c in example.after.constants.values()
    )


@pytest.mark.parametrize("step", PASSES, ids=lambda c: c.__name__)
def test_second_run_changes_nothing(step: type[Any]) -> None:
    result = made(step)(example_of(step).before)
    assert made(step)(result) == result


@pytest.mark.parametrize("step", PASSES, ids=lambda c: c.__name__)
def test_limit_zero_changes_nothing(step: type[Any]) -> None:
    before = example_of(step).before
    if "limit" in step.__dataclass_fields__:
        assert made(step, limit=0)(before) == before
        assert "limit=0" in pass_text(made(step, limit=0))


def test_there_are_passes_and_examples_differ() -> None:
    assert len(PASSES) >= 14
    for step in PASSES:
        example = example_of(step)
        assert print_graph(example.before) != print_graph(example.after)
