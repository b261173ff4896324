"""Attention as exporters write it, with its operands sliced, moved and repeated first; and its
device program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from machines import chosen_options
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from small_models import model

from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.index import evaluate, parse_index
from modelcc.ir.program import Program
from modelcc.ir.types import Array
from modelcc.pipeline import before_block, run_stages

DEPTH = 16


def joint_attention(
    batch: int | str,
    rows: int | str,
    heads: int,
    groups: int,
    past: int | str = 0,
    depth: int = DEPTH,
    mask: bool = False,
    causal: bool = False,
    keys: int | str = "",
) -> ModelProto:
    """Queries, keys and values side by side in ``x``, keys and values of ``groups`` of heads, more
    of them from before: ``past``, which come back with the new ones.  With ``keys``, these and
    values are in ``z``."""
    widths = (heads * depth, groups * depth, groups * depth)
    arrays = {
        "widths": np.array(widths),
        "few": np.array([0, 0, groups, depth]),
        "apart": np.array([0, 0, heads, depth]),
        "axis": np.array([2]),
        "times": np.array([1, 1, heads // groups, 1, 1]),
        "merged": np.array([0, heads, -1, depth]),
        "whole": np.array([0, 0, heads * depth]),
        "scale": np.array(depth**-0.5, np.float32),
    }
    inputs: dict[str, tuple[int | str, ...]] = {"x": (batch, rows, sum(widths))}
    outputs: dict[str, tuple[int | str, ...]] = {"y": (batch, rows, heads * depth)}
    total = rows + past if isinstance(rows, int) and isinstance(past, int) else f"{past}+{rows}"
    total = keys or (rows if past == 0 else total)
    if keys != "":
        inputs = {"x": (batch, rows, widths[0]), "z": (batch, keys, sum(widths[1:]))}
        arrays["widths"] = np.array(widths[1:])
    if past != 0:
        inputs |= {f"past_{n}": (batch, groups, past, depth) for n in "kv"}
        outputs |= {f"present_{n}": (batch, groups, total, depth) for n in "kv"}
    if mask:
        inputs["mask"] = (batch, 1, rows, total)
    if causal:
        assert isinstance(rows, int)
        assert isinstance(total, int)
        hidden = np.triu(np.full((rows, total), -np.inf, np.float32), total - rows + 1)
        arrays["hidden"] = hidden
    split = ("x", "q k v") if keys == "" else ("z", "k v")
    nodes = [helper.make_node("Split", [split[0], "widths"], split[1].split(), "split", axis=2)]
    if keys != "":
        nodes.append(helper.make_node("Identity", ["x"], ["q"]))
    nodes += _nodes(heads != groups, past != 0, mask, causal)
    return model(nodes, inputs, outputs, arrays)


def _nodes(repeats: bool, past: bool, mask: bool, causal: bool) -> Iterator[NodeProto]:
    def node(kind: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
        return helper.make_node(kind, inputs.split(), output.split(), output, **attributes)

    for name in "qkv":
        yield node("Reshape", f"{name} {'apart' if name == 'q' else 'few'}", f"{name}_heads")
        found = f"new_{name}" if past and name != "q" else f"{name}_each"
        yield node("Transpose", f"{name}_heads", found, perm=[0, 2, 1, 3])
    for name in "kv" if past else "":
        yield node("Concat", f"past_{name} new_{name}", f"present_{name}", axis=2)
    for name in "kv":
        each = f"present_{name}" if past else f"{name}_each"
        if repeats:
            yield node("Unsqueeze", f"{each} axis", f"{name}_one")
            yield node("Expand", f"{name}_one times", f"{name}_many")
            yield node("Reshape", f"{name}_many merged", f"{name}_all")
        else:
            yield node("Identity", each, f"{name}_all")
    yield node("Transpose", "k_all", "k_turned", perm=[0, 1, 3, 2])
    yield node("MatMul", "q_each k_turned", "products")
    yield node("Mul", "products scale", "scores")
    scores = "scores"
    for name in (*(("mask",) if mask else ()), *(("hidden",) if causal else ())):
        yield node("Add", f"{scores} {name}", f"{scores}_{name}")
        scores = f"{scores}_{name}"
    yield node("Softmax", scores, "weights", axis=3)
    yield node("MatMul", "weights v_all", "mixed")
    yield node("Transpose", "mixed", "turned", perm=[0, 2, 1, 3])
    yield node("Reshape", "turned whole", "y")


def halved(source: ModelProto) -> ModelProto:
    """The same of f16."""
    half = TensorProto.FLOAT16
    for value in (*source.graph.input, *source.graph.output):
        value.type.tensor_type.elem_type = half
    for number, one in enumerate(source.graph.initializer):
        array = numpy_helper.to_array(one)
        if array.dtype == np.float32:
            changed = numpy_helper.from_array(array.astype(np.float16), one.name)
            source.graph.initializer[number].CopyFrom(changed)
    return source


def feeds_for(source: ModelProto, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Random inputs."""
    rng = np.random.default_rng(1)
    feeds: dict[str, Array] = {}
    for value in source.graph.input:
        extents = value.type.tensor_type.shape.dim
        shape = [
            evaluate(parse_index(d.dim_param), sizes) if d.dim_param else d.dim_value
            for d in extents
        ]
        feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def scheduled(source: ModelProto, target: str) -> Program:
    """The program for a target before memory is planned."""
    options = chosen_options(target=target)
    stages = pipeline(target_of(options), options, NOWHERE)
    return run_stages(before_block(stages, "loop"), source)
