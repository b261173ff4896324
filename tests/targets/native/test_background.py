"""Building in the background changes when kernels are built, not what is built."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from modelcc.driver import compile_model, pipeline
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.errors import ModelError
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.native.target import NativeTarget, native_target
from modelcc.targets.registry import make_target
from tests.machines import chosen_options
from tests.small_models import mlp


def test_the_artifact_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    for jobs in (1, 2):
        compiled = compile_model(import_onnx(mlp()), chosen_options(), BuildConfig(None, jobs))
        compiled.save(tmp_path / str(jobs))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_so_is_that_of_a_model_of_many_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelcc.targets.native.target.LONG_STEPS", 0)
    for jobs in (1, 2):
        compiled = compile_model(import_onnx(mlp()), chosen_options(), BuildConfig(None, jobs))
        compiled.save(tmp_path / str(jobs))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@dataclass(frozen=True)
class Derived(NativeTarget):
    """A target of another package."""


def test_one_job_and_other_targets_build_in_order() -> None:
    native, other = native_target(TargetOptions()), make_target("c", TargetOptions())
    derived = Derived(native.machine, native.cpu, native.options, native.codegen)
    for target, jobs, early, background in (
        (native, 1, True, False),
        (native, 2, True, True),
        (derived, 2, True, True),
        (native, 2, False, False),
        (other, 2, True, False),
    ):
        with target.build_context(BuildConfig(None, jobs), early) as context:
            assert (context.emit != target.emit) == background


def test_functions_are_known_by_more_than_their_names() -> None:
    """Another function of a name is legalized and emitted anew; the same one is not."""
    native = make_target("native", TargetOptions())
    stages = before_block(pipeline(native, chosen_options(), BuildConfig()), "loop")
    program = run_stages(stages, mlp())
    first, second = program.functions
    with native.build_context(BuildConfig(None, 2)) as context:
        for function in (first, replace(second, name=first.name)):
            context.scheduled(function)
            assert context.legalize(function) is context.legalize(function)
            assert context.legalize(function) == native.legalize(function)


def test_an_error_ends_the_processes() -> None:
    native = make_target("native", TargetOptions())
    with pytest.raises(ModelError), native.build_context(BuildConfig(None, 2)):
        raise ModelError("no")
