"""Tests compile for the processor that pytest's ``--cpu`` names, not for this machine's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelcc.environment import CPU
from tests.machines import chosen_options, chosen_target_options

HERE = Path(__file__).parent
NO_CODE = {
    "axis.py": "targets with machines of their own",
    "amd_emulator/__main__.py": "targets with machines of their own",
    "device_models.py": "targets with machines of their own",
    "targets/amdgpu/test_amdgpu.py": "targets with machines of their own",
    "targets/amdgpu/test_emulated.py": "targets with machines of their own",
    "targets/amdgpu/test_program.py": "targets with machines of their own",
    "targets/cuda/test_convolutions.py": "targets with machines of their own",
    "targets/cuda/test_grid.py": "targets with machines of their own",
    "targets/cuda/test_libraries.py": "targets with machines of their own",
    "targets/cuda/test_program.py": "targets with machines of their own",
    "targets/cuda/test_quantised_models.py": "targets with machines of their own",
    "targets/cuda/test_scatters.py": "targets with machines of their own",
    "ptx_emulator/__main__.py": "targets with machines of their own",
    "targets/cuda/test_emulated.py": "targets with machines of their own",
    "targets/cuda/test_split_product.py": "targets with machines of their own",
    "targets/cuda/test_tensor_product.py": "targets with machines of their own",
    "targets/mcu/libraries/test_cmsis_nn.py": "targets with machines of their own",
    "metal_kernels.py": "targets with machines of their own",
    "targets/metal/test_matrices.py": "targets with machines of their own",
    "targets/metal/test_metal.py": "targets with machines of their own",
    "targets/opencl/test_machine.py": "targets with machines of their own",
    "targets/opencl/test_target.py": "targets with machines of their own",
    "targets/triton/test_triton.py": "targets with machines of their own",
    "targets/webgpu/page/test_folder.py": "targets with machines of their own",
    "triton_runs.py": "targets with machines of their own",
    "embedded.py": "targets with machines of their own",
    "emulated/test_aarch64.py": "a target with a machine of its own",
    "feeds/test_random.py": "inputs and keys, no code",
    "test_arguments.py": "options themselves, which nothing is compiled with",
    "test_targets.py": "equality of targets, no code",
    "test_onnxruntime_errors.py": "targets with machines of their own",
    "test_torch_gpu.py": "targets with machines of their own",
    "passes/graph/test_keep_sums.py": "graphs and targets with machines of their own",
    "targets/c/test_target.py": "text, or C without vectors",
    "targets/native/test_background.py": "targets, which build nothing",
    "targets/native/test_host.py": "machines and models, no code",
    "targets/native/test_linux_machine.py": "machines, no code",
    "typing/users.py": "types, which only pyright looks at",
}
"""Where options may name no processor → why."""


def _calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else \
                getattr(node.func, "id", "")  # fmt: skip
            yield name, node


def _forgets_the_processor(name: str, call: ast.Call) -> bool:
    named = {keyword.arg for keyword in call.keywords}
    if name in ("Options", "TargetOptions"):
        return not named & {"cpu", None}
    return name == "compile_model" and len(call.args) < 2 and "options" not in named


def test_options_name_the_processor() -> None:
    found = {
        path.relative_to(HERE).as_posix()
        for path in HERE.rglob("*.py")
        if path != HERE / "machines.py"
        and any(_forgets_the_processor(name, call) for name, call in _calls(path))
    }
    assert found == set(NO_CODE)


def test_options_follow_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU, "x86-64-v2")
    assert chosen_options(threads=1).cpu == chosen_target_options().cpu == "x86-64-v2"
