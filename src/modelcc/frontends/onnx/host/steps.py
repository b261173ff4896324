"""Operators that are steps of the runtime: they come before compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.onnx.call import Call
from modelcc.ir.structure import Setting
from modelcc.ir.types import TensorType


def host_step(
    call: Call,
    function: str,
    results: tuple[TensorType, ...],
    settings: Mapping[str, Setting] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Results of runtime step ``function`` on what the caller gives, or such steps made of it."""
    named = {f"{'/'.join(call.source)}.{i}": type for i, type in enumerate(results)}
    return call.emitter.host_step(function, call.inputs, named, settings)
