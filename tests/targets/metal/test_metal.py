"""Kernels printed for Metal compute on a processor what ops mean; what has no form is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from group_kernels import FIRST, SHOWN, grouped
from metal_kernels import by_metal
from metal_source import for_processors
from onnx import helper
from op_kernels import CASES, check, other_sizes, with_sizes
from scatters import ON_DEVICES, check_on_device
from small_models import computed_gather, mlp, model
from transpositions import ON_DEVICES as TURNED
from transpositions import check_turned

from modelcc.emit.emission import emit
from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes
from modelcc.options import Options
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.metal.target import MACHINES, metal_target, metal_text
from modelcc.targets.registry import make_target

MEMORIES = Path(__file__).parents[2] / "metal_memories.h"
SINGLE = [case for case in SHOWN if case.id != "Cast-0"]
"""Without one that casts to doubles."""


@pytest.mark.share(3, "op")
@pytest.mark.parametrize(("op", "sample"), SINGLE)
def test_kernels_agree_with_the_reference(op: Op, sample: Sample) -> None:
    """One program at all sizes of the named dimensions."""
    program = grouped(op, sample)
    run = by_metal(program.functions)
    for env in (sizes(op, sample), *other_sizes(op, sample)):
        check(op, program, run, arrays(op, with_sizes(sample, env)), env)


@pytest.mark.parametrize("name", ON_DEVICES)
def test_updates_by_lists(name: str) -> None:
    check_on_device(name, lambda program: by_metal(program.functions), MACHINES["apple"])


@pytest.mark.share(60, "sample")
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_every_op_runs_or_is_refused(op: Op, sample: Sample) -> None:
    try:
        program = grouped(op, sample, machine=MACHINES["apple"])
        run = by_metal(program.functions)
    except (ModelError, NotImplementedError, TypeError) as error:
        refused = "no schedule for Scatter|cannot compute with|has no f64"
        assert re.search(refused, str(error))
        return
    check(op, program, run, arrays(op, sample), sizes(op, sample))


@pytest.mark.share(8, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_no_pointer_is_taken_for_one_into_another_memory(
    op: Op, sample: Sample, tmp_path: Path
) -> None:
    """Clang has address spaces, as Metal's compiler has, which is made of it."""
    clang = next(filter(None, map(shutil.which, ("clang++", "clang++-15"))), None)
    if clang is None:
        pytest.skip("there is no clang++")
    target = metal_target(TargetOptions())
    try:
        functions = grouped(op, sample, machine=MACHINES["apple"]).functions
        text = metal_text([target.legalize_groups(f) for f in functions])
    except (ModelError, NotImplementedError, TypeError):
        return
    (tmp_path / "metal_stdlib").write_text(MEMORIES.read_text())
    (tmp_path / "kernels.cpp").write_text(for_processors(text))
    flags = ["-std=c++17", "-fsyntax-only", "-nostdinc", f"-I{tmp_path}", "-Wno-everything"]
    command = [clang, *flags, str(tmp_path / "kernels.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_odd_names_and_bits() -> None:
    """Words of Metal and of C++ are no names; constants and bits are as NumPy has them."""
    text = """func @f(%half: i64[2], %device: mut i64[4], %class: mut f32[4], %rint: mut i32[4]) {
      grid kernel in 0 .. 1 {
        thread threadgroup in 0 .. 4 {
          store %device[threadgroup] = add(i64(-9223372036854775808), load %half[threadgroup mod 2])
          let %uint3 = select(predicate(threadgroup < 2), f32(inf), round(f32(2.5)))
          store %class[threadgroup] = %uint3
          store %rint[threadgroup] = bitcast[i32](%uint3)
        }
      }
    }"""
    run = by_metal([parse_function(text)])
    found = [np.arange(2), np.zeros(4, np.int64), np.zeros(4, np.float32), np.zeros(4, np.int32)]
    run("f", found, [])
    wanted = np.array([np.inf, np.inf, 2, 2], np.float32)
    np.testing.assert_array_equal(found[1], np.iinfo(np.int64).min + np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(found[3], wanted.view(np.int32))


def test_every_half_is_converted() -> None:
    """By the compiler's own conversions, to the bit."""
    text = """func @h(%x: f16[65536], %w: mut f32[65536], %y: mut f16[65536]) {
      grid g in 0 .. 256 {
        thread t in 0 .. 256 {
          store %w[256*g + t] = convert[f32](load %x[256*g + t])
          store %y[256*g + t] = mul(load %x[256*g + t], f16(0.3))
        }
      }
    }"""
    run = by_metal([parse_function(text)])
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    found = [x, np.zeros(65536, np.float32), np.zeros(65536, np.float16)]
    run("h", found, [])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found[1], x.astype(np.float32))
        np.testing.assert_array_equal(found[2], x * np.float16(0.3))


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
    run = by_metal([parse_function(text)])
    y = np.zeros(4, np.float32)
    run("f", [np.array([0, 1, 2, 3]), y], [])
    assert (y == 1).all()
    with pytest.raises(IndexError, match="check 0 of f fails"):
        run("f", [np.array([0, 1, -2, 3]), y], [])


def test_more_arguments_than_there_are_buffers() -> None:
    """Such a kernel runs on the processor."""
    target = metal_target(TargetOptions())

    def taking(inputs: int) -> str:
        given = ", ".join(f"%x{n}: f32[n]" for n in range(inputs))
        text = f"""func @f({given}, %y: mut f32[n]; n) {{
          grid g in 0 .. n {{ thread t in 0 .. 1 {{ store %y[g] = load %x0[g] }} }}
        }}"""
        return target.lacks(parse_function(text))

    assert taking(29) == ""
    assert taking(30) == "it takes 32 buffers and sizes, and kernels of Metal 31"


def test_the_text_says_what_is_launched() -> None:
    target = make_target("metal", TargetOptions())
    emission = emit(mlp("batch"), None, "msl", target, Options(target="metal"), BuildConfig())
    text = emission.contents.decode()
    assert " *   k1_MatMul(h2, w1, y; batch) ((3*batch + 31) floordiv 32, 1, 1) x (" in text
    assert "device float *restrict y0_ [[buffer(2)]], constant int64_t &batch [[buffer(3)]]" in text
    assert emission.suffix == ".metal"


def test_doubles_are_refused() -> None:
    text = """func @f(%y: mut f32[4]) {
      grid g in 0 .. 1 {
        thread t in 0 .. 4 {
          store %y[t] = convert[f32](sqrt(f64(2.0)))
        }
      }
    }"""
    with pytest.raises(TypeError, match="has no f64, which @f computes with; cast it to f32"):
        metal_text([parse_function(text)])


PRODUCT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, width] x) => (float[batch, 4] y) <float[6, 4] w = {
  1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4
}> { [product] y = MatMul (x, w) }"""


def test_what_sizes_must_be_is_told() -> None:
    """Kernels cannot end a run, so a dimension that has to be that of a constant is to be fixed."""
    model, config = onnx.parser.parse_model(PRODUCT), BuildConfig()
    target = make_target("metal", TargetOptions())
    with pytest.raises(ModelError, match=r"product: .*only with width == 6") as caught:
        emit(model, None, "msl", target, Options(target="metal"), config)
    assert "--dim" in str(caught.value)
    fixed = Options(target="metal", dims=(("width", 6),))
    assert emit(model, None, "msl", target, fixed, config).contents


def test_what_is_no_kernel_is_not_written() -> None:
    """A search of two rows is the processor's."""
    nodes = [helper.make_node("Hardmax", ["x"], ["y"], "best", axis=1)]
    found = model(nodes, {"x": (2, 6)}, {"y": (2, 6)}, {})
    target = make_target("metal", TargetOptions())
    with pytest.raises(ModelError, match=r"best: kernels are all that is written, and none comp"):
        emit(found, None, "msl", target, Options(target="metal"), BuildConfig())
    assert emit(found, None, "program", target, Options(target="metal"), BuildConfig()).contents


def test_checks_have_a_buffer_that_the_text_tells_of() -> None:
    target = make_target("metal", TargetOptions())
    emission = emit(computed_gather(), None, "msl", target, Options(target="metal"), BuildConfig())
    head = emission.contents.decode().partition("*/")[0]
    assert "(j, table, y, 16 bytes for failed checks; n) (" in head


def test_targets_have_numbers() -> None:
    assert make_target("metal:1", TargetOptions()).description == (
        "device 1 of Metal, scheduled for Apple"
    )
    assert make_target("metal:integrated", TargetOptions()).description == (
        "device 0 of Metal, scheduled for integrated"
    )
    with pytest.raises(ModelError, match="no GPU of a Mac is called 'm3'"):
        make_target("metal:m3", TargetOptions())


@pytest.mark.parametrize("name", TURNED)
def test_operands_across_by_tiles(name: str) -> None:
    check_turned(name, lambda program: by_metal(program.functions), MACHINES["apple"])
