"""Operands that come at run time are packed where that pays, and products are as NumPy has them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, parser

import modelcc
from conformance.onnx_emission import run_model
from modelcc.ir.index import Range, Sym
from modelcc.ir.region import Branch
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, Array
from modelcc.schedule.wanted import Wanted
from modelcc.targets.cpu.algorithms import tensor_passes
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.pack_operands import PackOperands
from tests.machines import chosen_target_options

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
DTYPES = {
    "float": (np.float32, 1e-5),
    "double": (np.float64, 1e-12),
    "float16": (np.float16, 4e-3),
    "bfloat16": (ml_dtypes.bfloat16, 3e-2),
}
FORMS = {
    "plain": ("[n, k]", "[k, m]", "c = MatMul(a, b)"),
    "left transposed": ("[k, n]", "[k, m]", "t = Transpose(a) c = MatMul(t, b)"),
    "right transposed": ("[n, k]", "[m, k]", "t = Transpose(b) c = MatMul(a, t)"),
    "both transposed": ("[k, n]", "[m, k]", "c = Gemm<transA = 1, transB = 1>(a, b)"),
    "batches": ("[s, n, k]", "[s, k, m]", "c = MatMul(a, b)"),
    "one right operand": ("[s, n, k]", "[k, m]", "c = MatMul(a, b)"),
    "with an epilogue": ("[n, k]", "[k, m]", "p = MatMul(a, b) c = Abs(p)"),
    "with itself": ("[n, n]", "[n, n]", "p = MatMul(a, b) c = Add(p, b)"),
}
CASES = [("plain", dtype) for dtype in DTYPES] + [(form, "float") for form in FORMS]
EXTENTS = (0, 1, 2, 7, 16, 17, 40, 255, 257)


def model_of(form: str, dtype: str, sizes: dict[str, int] | None = None) -> ModelProto:
    """The form, its extents named or as in ``sizes``."""
    a, b, body = FORMS[form]
    for name, size in (sizes or {}).items():
        a, b = (shape.replace(name, str(size)) for shape in (a, b))
    return parser.parse_model(f"{HEAD} g ({dtype}{a} a, {dtype}{b} b) => ({dtype} c) {{ {body} }}")


def shapes_of(form: str, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Shapes of both operands."""
    return [tuple(sizes[name] for name in s[1:-1].split(", ")) for s in FORMS[form][:2]]


def wanted_of(form: str, a: Array, b: Array) -> Array:
    """The result in double precision."""
    left = a.T if form in ("left transposed", "both transposed") else a
    right = b.T if form in ("right transposed", "both transposed") else b
    found = np.matmul(left.astype(np.float64), right.astype(np.float64))
    if form == "with an epilogue":
        return np.abs(found)
    return found + b.astype(np.float64) if form == "with itself" else found


@cache
def named(form: str, dtype: str, threads: int = 1) -> modelcc.Model:
    """The form with named extents."""
    return modelcc.compile(model_of(form, dtype), threads=threads, cache=None)


def operands(form: str, dtype: str, sizes: dict[str, int]) -> list[Array]:
    """Random ones."""
    random = np.random.default_rng(sum(sizes.values()))
    made = [random.standard_normal(s) for s in shapes_of(form, sizes)]
    return [x.astype(DTYPES[dtype][0]) for x in made]


def check(net: modelcc.Model, form: str, dtype: str, sizes: dict[str, int]) -> None:
    a, b = operands(form, dtype, sizes)
    wanted, found = wanted_of(form, a, b), np.asarray(net(a, b)).astype(np.float64)
    assert found.shape == wanted.shape
    scale = 1 + 4 * np.sqrt(max(sizes["n"], sizes["k"]))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=DTYPES[dtype][1] * scale)


SIZES = st.fixed_dictionaries(
    {name: st.sampled_from(EXTENTS) for name in "nkm"} | {"s": st.integers(0, 3)}
)


@pytest.mark.parametrize(("form", "dtype"), dict.fromkeys(CASES))
@settings(max_examples=25)
@given(sizes=SIZES)
def test_named_extents(form: str, dtype: str, sizes: dict[str, int]) -> None:
    check(named(form, dtype), form, dtype, sizes)


@pytest.mark.share(3, "form", "extents")
@pytest.mark.parametrize(("form", "dtype"), dict.fromkeys(CASES))
@pytest.mark.parametrize("extents", [(17, 257, 255), (255, 17, 257), (40, 300, 40)], ids=str)
def test_given_extents(form: str, dtype: str, extents: tuple[int, int, int]) -> None:
    sizes = {**dict(zip("nkm", extents, strict=True)), "s": 2}
    net = modelcc.compile(model_of(form, dtype, sizes), threads=1, cache=None)
    check(net, form, dtype, sizes)


@pytest.mark.parametrize("form", FORMS)
def test_two_threads_give_the_same_bits(form: str) -> None:
    sizes = {"n": 97, "k": 130, "m": 131, "s": 3}
    a, b = operands(form, "float", sizes)
    one, two = (np.asarray(named(form, "float", threads)(a, b)) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", FORMS)
def test_what_memory_held_before_does_not_leak(form: str, value: float) -> None:
    net, sizes = named(form, "float"), {"n": 64, "k": 64, "m": 64, "s": 2}
    net(*(np.full(shape, value, np.float32) for shape in shapes_of(form, sizes)))
    check(net, form, "float", {"n": 33, "k": 33, "m": 33, "s": 1})


def product(rows: object, depth: object, columns: object) -> TensorProgram:
    """The program of one product."""
    a, b, c = f"[{rows}, {depth}]", f"[{depth}, {columns}]", f"[{rows}, {columns}]"
    body = f"%c: f32{c} = [i < {rows}, j < {columns}] sum[k < {depth}](%a[i, k] * %b[k, j])"
    text = f"kernel @product(%a: f32{a}, %b: f32{b}) -> (%c: f32{c}) {{ {body} }}"
    kernel, types = parse_kernel(text)
    names = (e for e in (rows, depth, columns) if isinstance(e, str))
    dims = {name: Range(0, None) for name in names}
    return TensorProgram("p", ("a", "b"), ("c",), (kernel,), types, {}, dims)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "packed"),
    [
        (128, 128, 128, True),
        (12, 128, "m", True),
        (12, "k", 128, True),
        (11, 128, 128, False),  # read too few times
        (128, 64, 128, False),  # in the first cache however it lies
        (128, 4096, 7, False),  # too narrow for vectors
    ],
)
def test_what_is_packed(rows: object, depth: object, columns: object, packed: bool) -> None:
    program = product(rows, depth, columns)
    assert PackOperands()(program) == program
    packed_program = PackOperands(rows=12, near=32 << 10)(program)
    names = [k.name for k in packed_program.items if isinstance(k, Kernel)]
    assert names == (["Pack", "product"] if packed else ["product"])


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "packed"),
    [
        (64, 512, 512, False),  # all of it streams from the second cache
        (192, 512, 512, True),  # so often that vectors next to each other are worth a copy
        (192, 64, 128, False),
        (64, 1024, 1024, True),  # from beyond
        (8, 1024, 1024, False),
    ],
)
def test_few_rows_read_what_the_second_cache_holds_as_it_lies(
    rows: int, depth: int, columns: int, packed: bool
) -> None:
    machine = CpuModel(l1_bytes=48 << 10, l2_bytes=2 << 20)
    program = product(rows, depth, columns)
    for step in tensor_passes(machine, False, chosen_target_options(), Wanted()).kernels:
        program = step(program) if isinstance(step, PackOperands) else program
    names = [k.name for k in program.items if isinstance(k, Kernel)]
    assert names == (["Pack", "product"] if packed else ["product"])


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (64, ["Pack", "product", "Transpose"]),
        (256, ["Pack", "product"]),  # too many to turn
        (60, ["Pack", "product"]),  # no whole vectors
    ],
)
def test_few_rows_are_packed_in_place_of_a_large_matrix(rows: int, names: list[str]) -> None:
    a, b, c = f"f32[{rows}, 512]", "f32[512, 512]", f"f32[{rows}, 512]"
    body = f"%c: {c} = [i < {rows}, j < 512] sum[k < 512](%a[i, k] * %b[j, k])"
    kernel, types = parse_kernel(f"kernel @product(%a: {a}, %b: {b}) -> (%c: {c}) {{ {body} }}")
    program = PackOperands()(TensorProgram("p", ("a", "b"), ("c",), (kernel,), types, {}, {}))
    verify_tensor_program(program)
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    assert [k.name for k in kernels] == names
    assert kernels[0].inputs == (("a",) if len(kernels) == 3 else ("b",))


def test_products_of_swapped_operands() -> None:
    sizes = {"n": 64, "k": 260, "m": 512}
    net = modelcc.compile(model_of("right transposed", "float", sizes), threads=1, cache=None)
    check(net, "right transposed", "float", sizes)


def test_a_single_row_of_a_named_number_reads_the_operand_as_it_is() -> None:
    single, branch = PackOperands(rows=12)(product("n", 128, "m")).items
    assert isinstance(single, Kernel) and isinstance(branch, Branch)
    assert branch.condition == single.outputs[0]
    (alone,) = branch.then
    assert isinstance(alone, Kernel) and alone.stages[0].axes[0].extent == 1
    assert [k.name for k in branch.other if isinstance(k, Kernel)] == ["Pack", "product"]


def test_rows_that_are_never_one_need_no_choice() -> None:
    sizes = {"n": 7, "k": 120, "m": 800}
    model = model_of("plain", "float", {"k": 120, "m": 800})
    net = modelcc.compile(model, dims={"n": (2, None)}, threads=1, cache=None)
    check(net, "plain", "float", sizes)


def test_products_that_fill_a_part_of_a_tensor_are_packed_at_any_size() -> None:
    """A branch would define all of it."""
    program = product("n", 128, 128)
    (kernel,) = program.items
    assert isinstance(kernel, Kernel)
    first = replace(kernel.stages[0], write=(Sym("i") + 1, Sym("j")))
    part = replace(kernel, stages=(first,))
    items = PackOperands(rows=12)(program.with_items((part,))).items
    names = [k.name for k in items if isinstance(k, Kernel)]
    assert names == ["Pack", "product"] and len(items) == 2


def test_blocks_of_lanes_follow_each_other_along_the_sum() -> None:
    found = PackOperands(rows=12)(product(64, 256, 100))
    assert str(found.types["c.packed"]) == "f32[256, 100]<d1/16 d0 d1%16>"


def test_a_left_operand_read_down_its_columns_is_turned() -> None:
    a, b, c = "f32[256, 80]", "f32[256, 100]", "f32[80, 100]"
    body = f"%c: {c} = [i < 80, j < 100] sum[k < 256](%a[k, i] * %b[k, j])"
    kernel, types = parse_kernel(f"kernel @gemm(%a: {a}, %b: {b}) -> (%c: {c}) {{ {body} }}")
    program = TensorProgram("p", ("a", "b"), ("c",), (kernel,), types, {}, {})
    found = PackOperands(rows=12)(program)
    assert str(found.types["c.turned"]) == "f32[80, 256]"
    assert PackOperands(rows=12, reuse=7)(program).types.get("c.turned") is None
    assert PackOperands()(program) == program


def test_products_share_the_copies_that_both_want() -> None:
    a, b, c = "f32[256, 80]", "f32[256, 100]", "f32[80, 100]"
    body = f"%c: {c} = [i < 80, j < 100] sum[k < 256](%a[k, i] * %b[k, j])"
    first = f"kernel @gemm(%a: {a}, %b: {b}) -> (%c: {c}) {{ {body} }}"
    one, types = parse_kernel(first)
    two, more = parse_kernel(first.replace("%a", "%d").replace("%c", "%e").replace("i", "m"))
    program = TensorProgram("p", ("a", "b", "d"), ("c", "e"), (one, two), {**types, **more}, {}, {})
    found = PackOperands(rows=12)(program).items
    names = [(k.name, *k.inputs) for k in found if isinstance(k, Kernel)]
    assert names == [
        ("Pack", "a"), ("Pack", "b"), ("gemm", "c.turned", "c.packed"),
        ("Pack", "d"), ("gemm", "e.turned", "c.packed"),
    ]  # fmt: skip


def test_windows_stay_where_they_are() -> None:
    """What neighbours along the vectors share would be copied for each of them."""
    x, w, y = "f32[1, 256, 200]", "f32[64, 256, 5]", "f32[1, 64, 196]"
    body = f"%y: {y} = [n < 1, o < 64, i < 196] sum[c < 256, t < 5](%x[n, c, i + t] * %w[o, c, t])"
    kernel, types = parse_kernel(f"kernel @conv(%x: {x}, %w: {w}) -> (%y: {y}) {{ {body} }}")
    program = TensorProgram("p", ("x", "w"), ("y",), (kernel,), types, {}, {})
    assert PackOperands(rows=12)(program) == program


@pytest.mark.parametrize("optimize", [0, 2])
def test_pads_are_not_packed(optimize: int) -> None:
    """An image whose channels are last, read through a transposition, has no copy of its pads."""
    model = parser.parse_model(
        f"{HEAD} g (float[1, 20, 20, 3] x, float[8, 3, 3, 3] w) => (float[1, 8, 10, 10] y) "
        "{ t = Transpose<perm = [0, 3, 1, 2]>(x) "
        "y = Conv<pads = [0, 0, 1, 1], strides = [2, 2]>(t, w) }"
    )
    random = np.random.default_rng(0)
    shapes = {"x": (1, 20, 20, 3), "w": (8, 3, 3, 3)}
    feeds = {n: random.standard_normal(s, np.float32) for n, s in shapes.items()}
    (wanted,) = run_model(model, feeds)
    net = modelcc.compile(model, threads=1, optimize=optimize, cache=None)
    np.testing.assert_allclose(net(**feeds), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
def test_copies_of_narrow_floats_are_what_is_multiplied(narrow: str) -> None:
    a, b, c = f"{narrow}[40, 24]", f"{narrow}[48, 24]", "f32[40, 48]"
    body = f"%c: {c} = [i < 40, j < 48] sum[k < 24](f32(%a[i, k]) * f32(%b[j, k]))"
    kernel, types = parse_kernel(f"kernel @product(%a: {a}, %b: {b}) -> (%c: {c}) {{ {body} }}")
    plain = TensorProgram("p", ("a", "b"), ("c",), (kernel,), types, {}, {})
    program = PackOperands()(plain)
    verify_tensor_program(program)
    assert [n for n, t in program.types.items() if t.dtype == F32] == ["c", "c.packed"]
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal(s).astype(types[n].dtype.numpy)
             for n, s in (("a", (40, 24)), ("b", (48, 24)))}  # fmt: skip
    found, expected = (run_program(p, feeds, {})["c"] for p in (program, plain))
    np.testing.assert_array_equal(found, expected)
