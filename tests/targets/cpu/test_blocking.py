"""Blocks of products around register tiles: which have some, and that they compute the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.ir.copies import Prefetch
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, evaluate
from modelcc.ir.library import meaning_of
from modelcc.ir.loop import For, Function, Load, Stmt
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.options import Options
from modelcc.schedule.canonical import CanonicalKernel, canonical
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.blocking import TRANSLATED
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.processors import COMMON, PROCESSORS

SMALL = {
    "l1_bytes": 1024, "l2_bytes": 36864, "l3_bytes": 0, "l1_bandwidth": 64.0, "l2_bandwidth": 32.0,
    "memory_bandwidth": 1.0,
}  # fmt: skip
"""Caches in which small products find no room."""

MODELS = {
    "plain": "(float[50, 96] x, float[96, 64] w) => (float[50, 64] y) { y = MatMul(x, w) }",
    "epilogue": "(float[50, 96] x, float[96, 70] w, float[70] b, float[50, 70] r)"
    " => (float[50, 70] y) { p = MatMul(x, w) q = Add(p, b) s = Add(q, r) y = Relu(s) }",
    "also stored": "(float[50, 96] x, float[96, 64] w) => (float[50, 64] p, float[50, 64] y)"
    " { p = MatMul(x, w) y = Neg(p) }",
    "batch": "(float[3, 40, 96] x, float[3, 96, 64] w) => (float[3, 40, 64] y)"
    " { y = MatMul(x, w) }",
    "double": "(double[50, 96] x, double[96, 33] w) => (double[50, 33] y) { y = MatMul(x, w) }",
    "prime": "(float[47, 97] x, float[97, 61] w) => (float[47, 61] y) { y = MatMul(x, w) }",
    "half": "(float16[50, 96] x, float16[96, 64] w) => (float16[50, 64] y) { y = MatMul(x, w) }",
    "whole numbers": "(int32[50, 96] x, int32[96, 64] w) => (int32[50, 64] y) { y = MatMul(x, w) }",
    "convolution": "(float[1, 96, 9, 8] x, float[64, 96, 1, 1] w, float[64] b)"
    " => (float[1, 64, 9, 8] y) { c = Conv(x, w, b) y = Relu(c) }",
    "windows": "(float[1, 64, 9, 8] x, float[64, 64, 3, 3] w) => (float[1, 64, 9, 8] y)"
    " { y = Conv<pads = [1, 1, 1, 1]>(x, w) }",
    "named": "(float[n, 96] x, float[96, m] w) => (float[n, m] y) { y = MatMul(x, w) }",
}
WEIGHTS = ("w", "b")


def parsed(name: str, given: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model, weights in it if ``given``, and what it is run with: whole numbers, of which all
    sums are exact."""
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g ' + MODELS[name])
    rng, feeds = np.random.default_rng(0), dict[str, np.ndarray]()
    kinds = {1: "f4", 6: "i4", 10: "f2", 11: "f8"}
    for value in list(model.graph.input):
        tensor = value.type.tensor_type
        shape = [d.dim_value or {"n": 50, "m": 41}[d.dim_param] for d in tensor.shape.dim]
        data = rng.integers(-4, 5, shape).astype(kinds[tensor.elem_type])
        if given and value.name in WEIGHTS:
            model.graph.initializer.append(onnx.numpy_helper.from_array(data, value.name))
            model.graph.input.remove(value)
        else:
            feeds[value.name] = data
    return model, feeds


def listing(model: onnx.ModelProto, **more: object) -> str:
    options = Options(cpu="x86-64-v3", **more)  # pyright: ignore[reportArgumentType]
    return emit(
        model, None, "schedule", target_of(options), options, BuildConfig()
    ).contents.decode()


def blocks(text: str) -> list[str]:
    return re.findall(r"blocks=\{([^}]*)\}", text)


@pytest.mark.share(3, "name", "threads", "given")
@pytest.mark.parametrize("given", [True, False], ids=["constants", "run time"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_blocks_for_small_caches_give_the_same(name: str, threads: int, given: bool) -> None:
    model, feeds = parsed(name, given)
    wanted = ReferenceEvaluator(model).run(None, feeds)
    net = modelcc.compile(model, threads=threads, machine=SMALL, winograd=False, cache=None)
    for y, z in zip(net.run(feeds).values(), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(y), z)


@pytest.mark.parametrize(
    ("name", "sums"),
    [
        ("plain", True), ("epilogue", True), ("batch", True), ("double", True),
        ("convolution", True), ("also stored", False), ("prime", False), ("half", False),
    ],
)  # fmt: skip
def test_sums_wait_where_results_go_if_there_is_room(name: str, sums: bool) -> None:
    model, _ = parsed(name, True)
    options = Options(cpu="x86-64-v3", machine=tuple(SMALL.items()))
    found = emit(model, None, "schedule", target_of(options), options, BuildConfig())
    cut = [factors.count(":") for factors in blocks(found.contents.decode())]
    assert cut == [2 if sums else 1]


def product(m: int, k: int, n: int) -> onnx.ModelProto:
    text = f"(float[{m}, {k}] x, float[{k}, {n}] w) => (float[{m}, {n}] y) {{ y = MatMul(x, w) }}"
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g ' + text)


@pytest.mark.parametrize(("size", "cut"), [((128, 768, 768), 0), ((2048, 2048, 2048), 1)])
def test_products_have_blocks_where_their_rows_do_not_stay_in_cache(
    size: tuple[int, int, int], cut: int
) -> None:
    options = Options(cpu="znver3", strassen=False)
    found = emit(product(*size), None, "schedule", target_of(options), options, BuildConfig())
    assert len(blocks(found.contents.decode())) == cut


@pytest.mark.parametrize(
    ("cpu", "size", "cut"),
    [
        ("sapphirerapids", (64, 5632, 2048), 2),  # panels of all steps do not fit into L2
        ("x86-64-v3", (64, 5632, 2048), 2),
        ("sapphirerapids", (64, 768, 3072), 0),
        ("sapphirerapids", (1536, 1536, 1536), 1),
        ("znver4", (64, 5632, 2048), 0),  # L3 is fast enough
    ],
)
def test_products_have_blocks_where_their_panels_come_too_slowly(
    cpu: str, size: tuple[int, int, int], cut: int
) -> None:
    machine = COMMON[cpu] if cpu in COMMON else PROCESSORS[cpu].model
    schedule = schedule_kernel(product_kernel(*size), "p", machine).schedule
    assert schedule is not None
    most = TRANSLATED if size[0] == 64 else machine.l2_bytes // 2
    vector = machine.vector_bits // 8
    factors = [
        {name: int(number) for name, number in re.findall(r"(\w+): (\d+)", block)}
        for block in blocks(print_schedule(schedule))
    ]
    assert [len(each) for each in factors] == [cut] * bool(cut)
    for each in factors:
        assert each["a1b"] * vector * each.get("a2", size[1]) <= most


def product_kernel(m: int, k: int, n: int) -> CanonicalKernel:
    """A product of ``m`` rows, ``k`` steps and ``n`` columns of constants."""
    x, w, y = f"f32[{m}, {k}]", f"f32[{k}, {n}]", f"f32[{m}, {n}]"
    body = f"%y: {y} = [m < {m}, n < {n}] sum[k < {k}](%x[m, k] * %w[k, n])"
    kernel, types = parse_kernel(f"kernel @p(%x: {x}, %w: {w}) -> (%y: {y}) {{ {body} }}")
    return canonical(kernel, types, frozenset(["w"]), {})[0]


def made(rows: int, factors: str) -> Function:
    """The loops of a product of ``rows``, 384 steps and 192 columns of constants, in blocks."""
    tiled = "tiled(vector=a1, lanes=16, tile={a1b: 2, a0: 4}, unroll={a2: 4}"
    schedule = parse_schedule(f"{tiled}, blocks={{{factors}}})")
    return meaning_of(
        schedule_kernel(product_kernel(rows, 384, 192), "p", CpuModel(), (), schedule).function
    )


Lines = dict[tuple[int, ...], set[int]]


def loads_of(statement: Stmt) -> list[Index]:
    """Offsets into the constant that the statement itself loads from."""
    parts = (part for each in statement_expressions(statement) for part in walk(each))
    return [e.offset for e in parts if isinstance(e, Load) and e.buffer == "x1"]


def lines_by_block(function: Function, around: int) -> tuple[Lines, Lines]:
    """Lines of the constant that each block loads and that it fetches, in the order of blocks,
    which are the ``around`` outermost loops."""
    loaded: Lines = {}
    fetched: Lines = {}
    offsets = {id(s): loads_of(s) for s in statements(function.body)}

    def visit(body: Sequence[Stmt], at: dict[str, int]) -> None:
        block = tuple(at.values())[:around]
        for s in body:
            if isinstance(s, Prefetch):
                fetched.setdefault(block, set()).add(evaluate(s.offset, at) // 16)
            elif isinstance(s, For):
                numbers = range(evaluate(s.start, at), evaluate(s.stop, at), s.step)
                for n in numbers:
                    visit(s.body, {**at, s.variable: n})
            for offset in offsets[id(s)]:
                loaded.setdefault(block, set()).add(evaluate(offset, at) // 16)

    visit(function.body, {})
    return loaded, fetched


@pytest.mark.parametrize(
    ("rows", "factors", "around"),
    [(8, "a1b: 4", 1), (8, "a1b: 4, a2: 128", 2), (16, "a1b: 6, a2: 192", 2)],
)
def test_a_block_fetches_the_next_one(rows: int, factors: str, around: int) -> None:
    loaded, fetched = lines_by_block(made(rows, factors), around)
    assert len(loaded) > 2
    for block, following in pairwise(loaded):
        assert loaded[following] <= fetched[block]
        assert not loaded[block] & loaded[following]


def test_a_block_of_very_many_rows_fetches_nothing() -> None:
    _, fetched = lines_by_block(made(4 * 65, "a1b: 4, a2: 128"), 2)
    assert not fetched


def with_blocks(text: str, factors: str) -> str:
    return re.sub(r"(tiled\(.*unroll.*), parallel", rf"\1, blocks={{{factors}}}, parallel", text)


@pytest.mark.parametrize("factors", ["a1b: 2", "a1b: 4, a2: 24", "a1b: 1000", "a1b: 6, a2: 96"])
def test_blocks_of_a_schedule_are_taken(factors: str) -> None:
    model, feeds = parsed("epilogue", False)
    text = re.sub(r"tile=\{[^}]*\}", "tile={a1b: 2, a0: 3}", listing(model))
    net = modelcc.compile(
        model, cpu="x86-64-v3", threads=1, schedule=with_blocks(text, factors), cache=None
    )
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(np.asarray(net.run(feeds)["y"]), wanted)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ("a1b: 3", "3 points of a1b are not whole tiles"),
        ("a1b: 0", "0 points of a1b are not whole tiles"),
        ("a2: 24", "they are of a1b, and maybe of a2, each once"),
        ("a1b: 2, a9: 1", "they are of a1b, and maybe of a2, each once"),
        ("a1b: 2, a1b: 4", "they are of a1b, and maybe of a2, each once"),
        ("a1b: 2, a2: 25", "25 does not divide the steps of a2"),
        ("a1b: 2, a2: 0", "0 does not divide the steps of a2"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(factors: str, message: str) -> None:
    model, _ = parsed("epilogue", False)
    text = re.sub(r"tile=\{[^}]*\}", "tile={a1b: 2, a0: 3}", listing(model))
    with pytest.raises(ModelError, match=message):
        modelcc.compile(
            model, cpu="x86-64-v3", threads=1, schedule=with_blocks(text, factors), cache=None
        )
