"""Available targets: built in, and installed by other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from modelcc.ir.errors import ModelError
from modelcc.ir.plugin import load_plugin
from modelcc.targets.base import ON_MATRIX_UNITS, Target, TargetOptions

GROUP = "modelcc.targets"

MakeTarget = Callable[[TargetOptions], Target]

_NATIVE, _MCU = "modelcc.targets.native", "modelcc.targets.mcu.target"
BUILT_IN: Mapping[str, EntryPoint] = MappingProxyType(
    {
        name: EntryPoint(name, function, GROUP)
        for name, function in (
            ("native", f"{_NATIVE}.target:native_target"),
            ("c", f"{_NATIVE}.c_target:c_target"),
            ("c99", f"{_NATIVE}.c_target:c99_target"),
            ("mcu", f"{_MCU}:mcu"),
            ("cortex-m0plus", f"{_MCU}:cortex_m0plus"),
            ("cortex-m3", f"{_MCU}:cortex_m3"),
            ("cortex-m4", f"{_MCU}:cortex_m4"),
            ("cortex-m7", f"{_MCU}:cortex_m7"),
            ("cortex-m33", f"{_MCU}:cortex_m33"),
            ("cortex-m55", f"{_MCU}:cortex_m55"),
            ("riscv32imc", f"{_MCU}:riscv32imc"),
            ("opencl", "modelcc.targets.opencl.target:opencl_target"),
            ("cuda", "modelcc.targets.cuda.target:cuda_target"),
            ("webgpu", "modelcc.targets.webgpu.target:webgpu_target"),
            ("metal", "modelcc.targets.metal.target:metal_target"),
            ("triton", "modelcc.targets.triton.target:triton_target"),
            ("amdgpu", "modelcc.targets.amdgpu.target:amdgpu_target"),
        )
    }
)
"""Imported on demand, as installed ones: printing C needs no LLVM."""

WITH_VARIANTS = ("opencl", "cuda", "amdgpu", "webgpu", "metal")
"""Targets whose names may be followed by a colon and a device or processor."""


def target_names() -> tuple[str, ...]:
    """Names of all targets, built-in ones first."""
    installed = sorted(point.name for point in entry_points(group=GROUP))
    return tuple(dict.fromkeys((*BUILT_IN, *installed)))


def make_target(name: str, options: TargetOptions) -> Target:
    """The target called ``name``, maybe with a variant (``opencl:1``) of those that have some;
    :class:`ModelError` if there is none, it does not load, or it does not support the requested
    precision of f32 products."""
    name, colon, variant = name.partition(":")
    if colon and name in BUILT_IN and name not in WITH_VARIANTS:
        raise ModelError(f"target {name!r} has no variants", (), f"leave ':{variant}' out")
    asked = options.precision if options.precision in ON_MATRIX_UNITS else "f32"
    options = replace(options, variant=variant, precision=asked)
    point = BUILT_IN.get(name) or next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        close = get_close_matches(name, target_names(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(target_names())}"
        raise ModelError(f"there is no target {name!r}", (), hint)
    make = load_plugin(point, object)
    if not callable(make):
        hint = "reinstall or uninstall the package that provides it"
        raise ModelError(f"{point.value} makes no target: it is no function", (), hint)
    target = cast(MakeTarget, make)(options)
    if asked != "f32" and not target.has_tf32:
        hint = "ask for f32, bf16 or f16; NVIDIA's GPUs of sm_80 and later have tf32"
        raise ModelError(f"target {name!r} has no products in {asked}", (), hint)
    return target
