"""Triton source says what it should, and computes what onnxruntime does in Triton's interpreter."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession
from op_kernels import SAMPLES, assert_close, graph_of
from small_models import mlp
from transformer_models import attention_block

from modelcc.driver import compile_model
from modelcc.ir.errors import ModelError
from modelcc.ir.op import Sample
from modelcc.ops.samples import arrays, sizes
from modelcc.options import Options
from tests.triton_runs import Job, fused, needs_triton, results, text_of

OPS = (
    "Softmax-0", "LayerNorm-0", "Conv-0", "MaxPool-0", "Attention-0", "Gather-0", "Tanh-0",
    "ScatterND-0", "ScatterElements-3",
)  # fmt: skip
BY_NAME = {name: (op, sample) for name, op, sample in SAMPLES}


def test_a_product_is_a_dot_of_tiles_with_its_epilogue() -> None:
    text = text_of(mlp("batch"))
    ast.parse(text)
    assert 'total = tl.dot(x0_value, x1_value, total, input_precision="ieee")' in text
    assert "tl.maximum(" in text and "batch = x.shape[0]" in text
    assert '@triton.autotune(configs=chosen(PRODUCT_CONFIGS), key=["batch"])' in text


def test_kernels_that_are_alike_are_written_once() -> None:
    kernels = fused(attention_block(layers=2))
    text = text_of(attention_block(layers=2))
    assert text.count("def attention_") == 1 < text.count("launch_attention_") - 1
    assert len(kernels.items) > text.count("@triton.jit")


def test_a_model_without_constants_is_called_like_any_other() -> None:
    """There is no file of them then."""
    op, sample = BY_NAME["Tanh-0"]
    parts = ast.parse(text_of(graph_of(op, sample, arrays(op, sample), False))).body
    own = [p for p in parts if isinstance(p, ast.FunctionDef) and p.name == "load_constants"]
    own += [p for p in parts if isinstance(p, ast.Assign) and ast.unparse(p) == "CONSTANTS = {}"]
    names = dict[str, Any]()
    exec(compile(ast.Module([*own], []), "model.py", "exec"), names)
    assert names["load_constants"]("model.npz", "cpu") == {}


def test_updates_that_may_meet_are_one_after_the_other_in_a_copy() -> None:
    op, sample = BY_NAME["ScatterND-0"]
    text = text_of(graph_of(op, sample, arrays(op, sample), False))
    assert "scatternd = x0.clone()" in text
    assert "for a0 in range(0, 3):" in text and "tl.debug_barrier()" in text
    assert "grid = (triton.cdiv(1, 256),)" in text


def test_nothing_is_compiled_here() -> None:
    with pytest.raises(ModelError, match="'triton' writes source text and makes no compiled"):
        compile_model(mlp(), Options(target="triton"))


@pytest.mark.parametrize(
    ("name", "message"),
    [("ScatterElements-1", "have no form of ReadSize"), ("Asin-0", "Triton has no 'asin' of f32")],
)
def test_what_has_no_form_is_refused_by_name(name: str, message: str) -> None:
    op, sample = BY_NAME[name]
    with pytest.raises(ModelError, match=message):
        text_of(graph_of(op, sample, arrays(op, sample), False))


@needs_triton
def test_ops_agree_with_the_reference(tmp_path: Path) -> None:
    jobs: list[Job] = []
    for name in OPS:
        op, sample = BY_NAME[name]
        data = arrays(op, sample)
        graph = graph_of(op, sample, data, False)
        jobs.append(Job(name, graph, [a for a in data if a is not None]))
    found = results(jobs, tmp_path)
    for job in jobs:
        op, sample = BY_NAME[job.name]
        wanted = op.substitute(sizes(op, sample)).reference(*arrays(op, sample))
        got = found[job.name]
        assert not isinstance(got, str), got
        for one, other in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            assert_close(one, other)


@needs_triton
def test_models_agree_with_onnxruntime(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    models = {
        "mlp": (mlp("batch"), generator.standard_normal((70, 6))),
        "block": (attention_block(), generator.standard_normal((2, 40, 32))),
    }
    jobs = [Job(n, m, [x.astype(np.float32)]) for n, (m, x) in models.items()]
    found = results(jobs, tmp_path)
    for job in jobs:
        (got, *_), (model, _) = found[job.name], models[job.name]
        session = InferenceSession(model.SerializeToString())
        (wanted,) = session.run(None, {session.get_inputs()[0].name: job.inputs[0]})
        assert not isinstance(got, str), found[job.name]
        np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-5, atol=1e-5)


@needs_triton
def test_powers_of_one_are_one(tmp_path: Path) -> None:
    """Of any exponent: its logarithm times an infinite one is no number."""
    x = np.array([1, -1, 1, 1, 4], np.float32)
    y = np.array([np.inf, np.inf, -np.inf, np.nan, 0.5], np.float32)
    op, _ = BY_NAME["Pow-0"]
    graph = graph_of(op, Sample((x, y), {}), (x, y), False)
    found = results([Job("powers", graph, [x, y])], tmp_path)["powers"]
    assert not isinstance(found, str), found
    np.testing.assert_array_equal(found[0], np.power(x, y))


@needs_triton
def test_an_index_out_of_range_ends_the_run(tmp_path: Path) -> None:
    op, sample = BY_NAME["Gather-0"]
    data = [a for a in arrays(op, sample) if a is not None]
    graph = graph_of(op, sample, tuple(data), False)
    found = results([Job("far", graph, [data[0], np.full_like(data[1], 99)])], tmp_path)
    assert "an index is out of range" in str(found["far"])
