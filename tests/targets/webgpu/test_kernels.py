"""Kernels printed as WGSL compute on a device what ops mean."""

from __future__ import annotations

import re

import numpy as np
import pytest
from group_kernels import SHOWN, grouped
from op_kernels import CASES, check, other_sizes, with_sizes
from scatters import ON_DEVICES, check_on_device
from transpositions import ON_DEVICES as TURNED
from transpositions import check_turned

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.op import Op, Sample
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import DTYPES, Array
from modelcc.ops.samples import arrays, sizes
from modelcc.targets.gpu.machine import PROCESSOR

pytest.importorskip("wgpu")
webgpu_kernels = pytest.importorskip("webgpu_kernels")

pytestmark = pytest.mark.usefixtures("device")


SAID = [case for case in SHOWN if not str(case.id).startswith("Cast")]
"""Without a cast from 64 bits."""


@pytest.mark.parametrize(("op", "sample"), SAID)
def test_kernels_agree_with_the_reference(op: Op, sample: Sample) -> None:
    """One program at all sizes of the named dimensions."""
    program = grouped(op, sample)
    run = webgpu_kernels.by_webgpu(program.functions)
    for env in (sizes(op, sample), *other_sizes(op, sample)):
        check(op, program, run, arrays(op, with_sizes(sample, env)), env)


@pytest.mark.share(60, "sample")
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_every_op_runs_or_is_refused(op: Op, sample: Sample) -> None:
    try:
        program = grouped(op, sample)
        run = webgpu_kernels.by_webgpu(program.functions)
    except (ModelError, NotImplementedError, TypeError) as error:
        known = "no schedule for Scatter|cannot compute with f64|takes .* buffers"
        assert re.search(known, str(error))
        return
    check(op, program, run, arrays(op, sample), sizes(op, sample))


@pytest.mark.parametrize("name", ON_DEVICES)
def test_updates_by_lists(name: str) -> None:
    check_on_device(name, lambda program: webgpu_kernels.by_webgpu(program.functions), PROCESSOR)


LONGS = ("add", "sub", "mul", "div", "floordiv", "mod", "fmod", "min", "max", "shl", "shr")
EDGES = (0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
         10**12, (1 << 62) + 12345, (1 << 63) - 1)  # fmt: skip


def pairs(name: str) -> tuple[Array, Array]:
    """All pairs of edges, with both signs where there are signs."""
    edges = np.array(EDGES, np.uint64).astype(DTYPES[name].numpy)
    edges = np.unique(np.concatenate([edges, -edges, ~edges]))
    left, right = np.meshgrid(edges, edges)
    return left.ravel().copy(), right.ravel().copy()


@pytest.mark.parametrize("name", ["i64", "u64"])
def test_integers_of_64_bits_are_exact(name: str) -> None:
    left, right = pairs(name)
    count = left.size
    for part in (LONGS[:5], LONGS[5:], ("lt", "le", "eq", "gt", "ne")):
        of = name if part[0] in LONGS else "bool"
        results = [np.zeros(count, DTYPES[of].numpy) for _ in part]
        stores = " ".join(f"store %r{n}[64*g + t] = {f}(%a, %b)" for n, f in enumerate(part))
        given = ", ".join(f"%r{n}: mut {of}[{count}]" for n in range(len(part)))
        function = parse_function(f"""func @f(%x: {name}[{count}], %y: {name}[{count}], {given}) {{
          grid g in 0 .. {-(-count // 64)} {{ thread t in 0 .. 64 {{
            if predicate(64*g + t < {count}) {{
              let %a = load %x[64*g + t]  let %b = load %y[64*g + t]  {stores}
            }}
          }} }}
        }}""")
        webgpu_kernels.by_webgpu([function])("f", [left, right, *results], [])
        for symbol, result in zip(part, results, strict=True):
            with np.errstate(all="ignore"):
                wanted = FUNCTIONS[symbol].numpy(left, right)
            wrong = np.flatnonzero(result != wanted)[:3]
            assert not wrong.size, (symbol, left[wrong], right[wrong], result[wrong], wanted[wrong])


def test_odd_names_and_bits() -> None:
    """Words of WGSL are no names; constants and bits are as NumPy has them."""
    text = """func @f(%array: i64[2], %var: mut i64[4], %shift: mut f32[4], %u32: mut i32[4]) {
      grid loop in 0 .. 1 {
        thread fn in 0 .. 4 {
          store %var[fn] = add(i64(-9223372036854775808), load %array[fn mod 2])
          let %bits = select(predicate(fn < 2), f32(inf), round(f32(2.5)))
          store %shift[fn] = %bits
          store %u32[fn] = bitcast[i32](%bits)
        }
      }
    }"""
    found = [np.arange(2), np.zeros(4, np.int64), np.zeros(4, np.float32), np.zeros(4, np.int32)]
    webgpu_kernels.by_webgpu([parse_function(text)])("f", found, [])
    wanted = np.array([np.inf, np.inf, 2, 2], np.float32)
    np.testing.assert_array_equal(found[1], np.iinfo(np.int64).min + np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(found[3], wanted.view(np.int32))


def test_more_groups_than_fit_in_a_row() -> None:
    """A launch has 65,535 groups in a dimension at most; what is behind is not written."""
    text = """func @f(%y: mut i32[n]; n) {
      grid g in 0 .. n { thread t in 0 .. 1 { store %y[g] = add(load %y[g], i32(1)) } }
    }"""
    counts = np.zeros(65540 + 8, np.int32)
    webgpu_kernels.by_webgpu([parse_function(text)])("f", [counts], [65540])
    assert (counts[:65540] == 1).all()
    assert not counts[65540:].any()


def test_memory_that_is_given_back_is_bound_no_more() -> None:
    """What comes in its place may look alike to Python."""
    text = """func @f(%x: i32[4], %y: mut i32[4]) {
      grid g in 0 .. 4 { thread t in 0 .. 1 { store %y[g] = add(load %x[g], i32(1)) } }
    }"""
    run = webgpu_kernels.by_webgpu([parse_function(text)])
    for start in range(8):
        x, y = np.arange(start, start + 4, dtype=np.int32), np.zeros(4, np.int32)
        run("f", [x, y], [])
        np.testing.assert_array_equal(y, x + 1)


def test_vectors_are_their_lanes() -> None:
    text = """func @f(%x: f32[16], %y: mut f32[16], %total: mut f32[1]; n) {
      grid g in 0 .. 1 { thread t in 0 .. 1 {
        register %a = load %x[0] x4
        for i in 4 .. 16 step 4 {
          %a = muladd(%a, f32x4(0.5), load %x[i] x4 mask(n - i))
        }
        %a = shuffle[3 2 1 0](%a, %a)
        store %y[1] stride(2) mask(3) = %a
        store %total[0] = reduce[add](%a)
      } }
    }"""
    x, y, total = np.arange(16, dtype=np.float32), np.zeros(16, np.float32), np.zeros(1, np.float32)
    webgpu_kernels.by_webgpu([parse_function(text)])("f", [x, y, total], [14])
    padded = np.where(np.arange(16) < 14, x, 0).reshape(4, 4)
    a = ((padded[0] / 2 + padded[1]) / 2 + padded[2]) / 2 + padded[3]
    assert total[0] == a.sum()
    np.testing.assert_array_equal(y[1:7:2], a[::-1][:3])
    assert not np.delete(y, [1, 3, 5]).any()


@pytest.mark.parametrize(
    "check", ["check %i below [4]", "check noting %i below [4] barrier"], ids=["leave", "go on"]
)
def test_an_index_out_of_range_is_noted(check: str) -> None:
    text = f"""func @f(%x: i64[4], %y: mut f32[4]) {{
      grid g in 0 .. 1 {{ thread t in 0 .. 4 {{
        let %i = load %x[t]
        {check}
        store %y[t] = f32(1.0)
      }} }}
    }}"""
    run = webgpu_kernels.by_webgpu([parse_function(text)])
    y = np.zeros(4, np.float32)
    run("f", [np.array([0, 1, 2, 3]), y], [])
    assert (y == 1).all()
    with pytest.raises(IndexError, match="check 0 of f fails"):
        run("f", [np.array([0, 1, -2, 3]), y], [])


def test_a_device_times_launches_by_its_own_clock() -> None:
    device = webgpu_kernels.WebgpuDevice("tests", webgpu_kernels.open_once())
    device.keep_times(True)
    text = """func @many(%y: mut i32[n]; n) {
      grid g in 0 .. n { thread t in 0 .. 1 { store %y[g] = add(load %y[g], i32(1)) } }
    }"""
    device.add([webgpu_kernels.shader_of(webgpu_kernels.plain_function(parse_function(text)))])
    memory = device.allocate(4 << 20)

    def seconds(groups: int) -> float:
        device.launch("many", [(memory, 0)], [groups], (groups, 1, 1))
        device.synchronize()
        return device.seconds()

    assert 0 < min(seconds(1) for _ in range(5)) < seconds(1 << 20)
    assert device.seconds() == 0
    device.keep_times(False)


@pytest.mark.parametrize("name", TURNED)
def test_operands_across_by_tiles(name: str) -> None:
    check_turned(name, lambda program: webgpu_kernels.by_webgpu(program.functions), PROCESSOR)
