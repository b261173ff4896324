"""C of the standard: strict compilers take it, and it computes what the other targets do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

import numpy as np
import onnxruntime
import pytest
from loop_programs import Runner
from native_loops import call
from op_kernels import CASES, graph_of
from rounding_loops import check_all_halves, check_rounding, check_rounding_to_halves

import modelcc
from modelcc.driver import check_stage, pipeline, target_of
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import BF16, F16, F32, F64, DType
from modelcc.ops.samples import arrays
from modelcc.pipeline import before_block, run_stages
from modelcc.runtime.loader import load_objects
from modelcc.targets.base import BuildConfig
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.c.dialect import C99
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.toolchain import CCompiler, find_compiler
from modelcc.targets.native.c_target import c99_target
from tests.machines import chosen_options, chosen_target_options
from tests.targets.c.test_target import MODELS, feeds_of

STRICT = ("gcc", "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
GNU_WORDS = re.compile(r"__attribute__|__builtin|__atomic|__asm__|#pragma")
OPS = {str(case.id).rpartition("-")[0]: case for case in CASES}


@pytest.fixture(scope="module")
def compiler() -> CCompiler:
    return find_compiler(dialect=C99)


@pytest.mark.share(3, "op")
@pytest.mark.parametrize(("op", "sample"), OPS.values())
def test_strict_compilers_take_every_op(op: Op, sample: Sample) -> None:
    options = chosen_options(target="c99", threads=2)
    target = target_of(options)
    stages = before_block(pipeline(target, options, BuildConfig()), "emit")
    graph = graph_of(op, sample, arrays(op, sample), True)
    text = target.complete(run_stages(stages, graph, check_stage))
    assert not GNU_WORDS.search(text)
    command = [*STRICT, "-xc", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_models_agree_with_onnxruntime(name: str, threads: int) -> None:
    model, feeds = MODELS[name](), feeds_of(name)
    found = modelcc.compile(model, "c99", threads=threads, cache=None)(feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(session.run(None, feeds)[0])
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_halves_are_exact(dtype: DType, compiler: CCompiler) -> None:
    check_all_halves(dtype, 1, _runner(compiler))
    check_rounding_to_halves(dtype, 1, _runner(compiler))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_rounding_is_exact(dtype: DType, compiler: CCompiler) -> None:
    check_rounding(dtype, 1, _runner(compiler))


def test_a_folder_is_refused() -> None:
    target = c99_target(chosen_target_options())
    options = chosen_options(target="c99")
    stages = before_block(pipeline(target, options, BuildConfig()), "emit")
    program = run_stages(stages, MODELS["choices"]())
    with pytest.raises(ModelError, match="target c99 writes no folder"):
        target.deliver(program, DeliveryRequest("m"))


def _runner(compiler: CCompiler) -> Runner:
    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        text = emit_c([function], EmitOptions(dialect=C99))
        call(load_objects([compiler.compile_object(text)]), function, arguments, sizes)

    return run
