"""Building ahead changes when kernels are built, not what is built."""

from pathlib import Path

import pytest

from modelcc.driver import compile_model
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.errors import ModelError
from modelcc.targets.base import TargetOptions, Workplace
from modelcc.targets.native.building_ahead import building_ahead
from modelcc.targets.native.target import NativeTarget
from modelcc.targets.registry import make_target
from tests.machines import chosen_options
from tests.small_models import mlp


def test_the_artifact_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    for jobs in (1, 2):
        compiled = compile_model(import_onnx(mlp()), chosen_options(), Workplace(None, jobs))
        compiled.save(tmp_path / str(jobs))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_so_is_that_of_a_model_of_many_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelcc.targets.native.target.LONG_STEPS", 0)
    for jobs in (1, 2):
        compiled = compile_model(import_onnx(mlp()), chosen_options(), Workplace(None, jobs))
        compiled.save(tmp_path / str(jobs))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_one_job_and_other_targets_build_as_ever() -> None:
    native = make_target("native", TargetOptions())
    with building_ahead(native, Workplace(None, 1)) as target:
        assert target is native
    with building_ahead(native, Workplace(None, 2)) as target:
        assert isinstance(target, NativeTarget) and target is not native
    other = make_target("c", TargetOptions())
    with building_ahead(other, Workplace(None, 2)) as target:
        assert target is other


def test_an_error_ends_the_processes() -> None:
    native = make_target("native", TargetOptions())
    with pytest.raises(ModelError), building_ahead(native, Workplace(None, 2)):
        raise ModelError("no")
