"""One row times a matrix that comes at run time: which kernels, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.ir.index import Range
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.schedule.canonical import canonical
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.row_sums import RowSumPlan, find_row_sums

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
MODELS = {
    "plain": "({t}[1, {k}] x, {t}[{k}, {n}] w) => ({t}[1, {n}] y) {{ y = MatMul(x, w) }}",
    "vector": "({t}[{k}] x, {t}[{k}, {n}] w) => ({t}[{n}] y) {{ y = MatMul(x, w) }}",
    "epilogue": "({t}[1, {k}] x, {t}[{k}, {n}] w, {t}[{n}] b) => ({t}[1, {n}] y)"
    " {{ p = MatMul(x, w) s = Add(p, b) y = Max(s, b) }}",
    "batch": "({t}[3, 1, {k}] x, {t}[3, {k}, {n}] w) => ({t}[3, 1, {n}] y) {{ y = MatMul(x, w) }}",
    "heads": "({t}[b, 2, 1, {k}] x, {t}[b, 2, {k}, {n}] w, {t}[2, 1, {n}] c)"
    " => ({t}[b, 2, 1, {n}] y) {{ p = MatMul(x, w) y = Add(p, c) }}",
    "scaled": "({t}[1, {k}] x, {t}[{k}, {n}] w, {t}[{n}] b) => ({t}[1, {n}] y)"
    " {{ v = Mul(w, b) y = MatMul(x, v) }}",
    "also read": "({t}[1, {k}] x, {t}[{k}, {n}] w) => ({t}[1, {n}] p, {t}[1, {n}] y)"
    " {{ p = MatMul(x, w) y = Neg(p) }}",
}
SIZES = ((1, 1), (7, 5), (8, 4096), (9, 1), (0, 5), (3, 0), (64, 33), (700, 3001), (1001, 517))


def parsed(name: str, dtype: str, k: object, n: object) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + MODELS[name].format(t=dtype, k=k, n=n))


def operands(model: onnx.ModelProto, k: int, n: int) -> dict[str, np.ndarray]:
    """Whole numbers, so that sums are exact in any order."""
    types = {"float": "f4", "double": "f8", "float16": "f2", "int32": "i4"}
    rng, found = np.random.default_rng(k + n), dict[str, np.ndarray]()
    sizes = {"k": k, "n": n, "b": 2}
    for x in model.graph.input:
        shape = x.type.tensor_type.shape.dim
        dims = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in shape]
        name = onnx.TensorProto.DataType.Name(x.type.tensor_type.elem_type).lower()
        found[x.name] = rng.integers(-9, 9, dims).astype(types[name])
    return found


KINDS = [(name, "float") for name in MODELS] + [
    ("epilogue", "double"), ("batch", "double"), ("plain", "float16"), ("epilogue", "int32"),
]  # fmt: skip


@pytest.mark.share(2, "name", "dtype", "threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_named_sizes(name: str, dtype: str, threads: int) -> None:
    model = parsed(name, dtype, "k", "n")
    net = modelcc.compile(model, threads=threads, cache=None)
    for k, n in SIZES:
        feeds = operands(model, k, n)
        wanted = ReferenceEvaluator(model).run(None, feeds)
        for y, z in zip(net.run(feeds).values(), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(y), z, err_msg=f"{k} x {n}")


@pytest.mark.share(2, "name", "size")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [(1024, 1024), (9, 120_001)], ids=str)
def test_given_sizes(name: str, size: tuple[int, int]) -> None:
    model = parsed(name, "float", *size)
    feeds = operands(model, *size)
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for threads in (1, 2):
        net = modelcc.compile(model, threads=threads, cache=None)
        for y, z in zip(net.run(feeds).values(), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(y), z)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    model = parsed("plain", "float", "k", "n")
    one, two = (modelcc.compile(model, threads=t, cache=None) for t in (1, 2))
    rng = np.random.default_rng(0)
    for k, n in ((777, 4099), (1000, 2048)):
        x = rng.standard_normal((1, k)).astype("f")
        w = rng.standard_normal((k, n)).astype("f")
        np.testing.assert_array_equal(np.asarray(one(x, w)), np.asarray(two(x, w)))


def found(matrix: str, k: object, n: object, constants: tuple[str, ...] = ()) -> RowSumPlan | None:
    """What is found in y[0, j] = sum of x[0, i] * w[``matrix``]."""
    w = f"f32[{k}, {n}]" if matrix == "i, j" else f"f32[{n}, {k}]"
    stage = f"%y: f32[1, {n}] = [a < 1, j < {n}] sum[i < {k}](%x[a, i] * %w[{matrix}])"
    text = f"kernel @product(%x: f32[1, {k}], %w: {w}) -> (%y: f32[1, {n}]) {{ {stage} }}"
    kernel, types = parse_kernel(text)
    dims = {name: Range(0, None) for name in (k, n) if isinstance(name, str)}
    key, _ = canonical(kernel, types, frozenset(constants), dims)
    return find_row_sums(key, CpuModel())


def test_matrices_beyond_the_second_cache_or_of_named_sizes() -> None:
    assert found("i, j", 1024, 1024) is not None
    assert found("i, j", "k", "n") is not None
    assert found("i, j", 64, 64) is None


def test_several_rows_and_rows_that_fit_registers_are_left_to_others() -> None:
    stage = "%y: f32[2, 3000] = [a < 2, j < 3000] sum[i < 900](%x[a, i] * %w[i, j])"
    head = "kernel @product(%x: f32[2, 900], %w: f32[900, 3000]) -> (%y: f32[2, 3000])"
    kernel, types = parse_kernel(f"{head} {{ {stage} }}")
    key, _ = canonical(kernel, types, frozenset(), {})
    assert find_row_sums(key, CpuModel()) is None
    assert found("i, j", "k", 256) is None
    assert found("i, j", "k", 272) is not None


def test_constants_and_rows_along_the_sum_are_left_to_others() -> None:
    assert found("i, j", 1024, 1024, ("w",)) is None
    assert found("j, i", 1024, 1024) is None


def test_blocks_fit_the_cache_and_go_to_all_threads() -> None:
    stage = "%y: f32[1, 3000] = [a < 1, j < 3000] sum[i < 900](%x[a, i] * %w[i, j])"
    head = "kernel @product(%x: f32[1, 900], %w: f32[900, 3000]) -> (%y: f32[1, 3000])"
    kernel, types = parse_kernel(f"{head} {{ {stage} }}")
    key, _ = canonical(kernel, types, frozenset(), {})
    machine = CpuModel(l1_bytes=32 << 10, vector_bits=256)
    for threads, block in ((1, 2048), (2, 1504), (4, 752)):
        sums = find_row_sums(key, replace(machine, threads=threads))
        assert sums is not None
        assert sums.block == block
