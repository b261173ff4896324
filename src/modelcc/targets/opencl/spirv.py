"""Functions of groups as SPIR-V, for OpenCL runtimes that accept it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.loop import Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.targets.gpu.llvm_kernels import LlvmKernels
from modelcc.targets.llvm.dialect import SPIRV
from modelcc.targets.llvm.instructions import NONE, Instructions
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.parallel_build import WorkerPool
from modelcc.targets.native.toolchain import CodegenOptions
from modelcc.targets.native.worker import CompileRequest

KERNELS = LlvmKernels(Machine("spirv64v1.2-unknown-unknown"), SPIRV, NONE)
"""SPIR-V 1.2, as OpenCL 2.2 has it."""

HALVES = replace(KERNELS, instructions=Instructions(half_conversions=True))
"""For devices that convert between f16 and f32 (``cl_khr_fp16``)."""


def spirv_module(functions: Sequence[Function], limits: GroupLimits) -> bytes:
    """The module of functions of groups; raises like :meth:`LlvmKernels.text`."""
    return spirv_of(KERNELS.text([KERNELS.legal(function) for function in functions], limits))


def spirv_of(text: str) -> bytes:
    """The module of LLVM IR that :data:`KERNELS` or :data:`HALVES` print."""
    # A separate process: LLVM's SPIR-V back end keeps ids of the previous module in a global
    # variable (llvm-project issue 160613), so that about one module in fifty was not valid.
    with WorkerPool(1) as process:
        return process.submit(CompileRequest(text, KERNELS.machine, CodegenOptions())).result()
