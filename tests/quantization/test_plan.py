"""Which ops compute on integers, and which tensors share a scale."""

from __future__ import annotations

from modelcc.quantization.plan import quantization_plan
from tests.quantization.graphs import products, residual


def test_tensors_are_rounded_where_products_read_them_in_the_end() -> None:
    plan = quantization_plan(residual())
    groups = [set(names) for names in plan.groups().values()]
    assert {"x"} in groups and {"a"} in groups
    assert {"d", "s", "p", "q", "both", "flat"} in groups  # a concatenation, and what is moved
    assert "y" not in plan.integer and "scores" not in plan.rounded
    assert [layer.name for layer in plan.layers] == ["stem", "depthwise", "sum", "head"]
    assert [layer.result for layer in plan.layers] == ["a", "d", "s", "scores"]


def test_a_constant_addend_follows_its_product() -> None:
    plan = quantization_plan(products())
    assert set(plan.rounded) == {"x", "h", "other"}
    assert [layer.weights != "" for layer in plan.layers] == [True, False]


def test_what_reads_floats_stays_float() -> None:
    plan = quantization_plan(residual(), skip=frozenset({"depthwise"}))
    assert [layer.name for layer in plan.layers] == ["stem", "head"]
    assert set(plan.rounded) == {"x", "flat"}  # neither the sum nor the pooling gains anything
    only = quantization_plan(residual(), ops=("Conv",))
    assert [layer.name for layer in only.layers] == ["stem", "depthwise"]
