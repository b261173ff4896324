"""Kernels printed for Metal compute on a processor what ops mean; what has no form is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from group_kernels import FIRST, SHOWN, grouped
from kernel_runs import run_scheduled
from metal_kernels import build_metal
from onnxruntime import InferenceSession
from op_kernels import check, other_sizes, with_sizes
from small_models import mlp

from modelcc.driver import compile_model, pipeline
from modelcc.emit.emission import emit
from modelcc.ir.errors import ModelError
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays, sizes
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.metal.target import metal_text
from modelcc.targets.registry import make_target

SINGLE = [case for case in SHOWN if case.id != "Cast-0"]
"""Without one that casts to doubles."""


@pytest.mark.share(3, "op")
@pytest.mark.parametrize(("op", "sample"), SINGLE)
def test_kernels_agree_with_the_reference(op: Op, sample: Sample, tmp_path: Path) -> None:
    """One program at all sizes of the named dimensions."""
    program = grouped(op, sample)
    run = build_metal(program.functions, tmp_path)
    for env in (sizes(op, sample), *other_sizes(op, sample)):
        check(op, program, run, arrays(op, with_sizes(sample, env)), env)


@pytest.mark.share(16, "op")
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_runs_or_is_refused(op: Op, sample: Sample, tmp_path: Path) -> None:
    try:
        program = grouped(op, sample)
        run = build_metal(program.functions, tmp_path)
    except (ModelError, NotImplementedError, TypeError) as error:
        refused = "no schedule for Scatter|checks an index|cannot compute with|have no f64"
        assert re.search(refused, str(error))
        return
    check(op, program, run, arrays(op, sample), sizes(op, sample))


def test_odd_names_and_bits(tmp_path: Path) -> None:
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
    run = build_metal([parse_function(text)], tmp_path)
    found = [np.arange(2), np.zeros(4, np.int64), np.zeros(4, np.float32), np.zeros(4, np.int32)]
    run("f", found, [])
    wanted = np.array([np.inf, np.inf, 2, 2], np.float32)
    np.testing.assert_array_equal(found[1], np.iinfo(np.int64).min + np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(found[3], wanted.view(np.int32))


def test_every_half_is_converted(tmp_path: Path) -> None:
    """By the compiler's own conversions, to the bit."""
    text = """func @h(%x: f16[65536], %w: mut f32[65536], %y: mut f16[65536]) {
      grid g in 0 .. 256 {
        thread t in 0 .. 256 {
          store %w[256*g + t] = convert[f32](load %x[256*g + t])
          store %y[256*g + t] = mul(load %x[256*g + t], f16(0.3))
        }
      }
    }"""
    run = build_metal([parse_function(text)], tmp_path)
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    found = [x, np.zeros(65536, np.float32), np.zeros(65536, np.float16)]
    run("h", found, [])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found[1], x.astype(np.float32))
        np.testing.assert_array_equal(found[2], x * np.float16(0.3))


def test_a_model_agrees_with_onnxruntime(tmp_path: Path) -> None:
    model, options, config = mlp("batch"), Options(target="metal"), BuildConfig()
    target = make_target("metal", TargetOptions())
    program = run_stages(before_block(pipeline(target, options, config), "loop"), model)
    x = np.random.default_rng(3).uniform(-1, 1, (11, 6)).astype(np.float32)
    got = run_scheduled(program, build_metal(program.functions, tmp_path), {"x": x}, {"batch": 11})
    (wanted,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got[program.outputs[0]], np.asarray(wanted), rtol=1e-5, atol=1e-6)


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
    with pytest.raises(TypeError, match="have no f64, which @f computes with; cast it to f32"):
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


def test_nothing_is_compiled_here() -> None:
    with pytest.raises(ModelError, match="writes source text and makes no compiled model"):
        compile_model(mlp(), Options(target="metal"))
