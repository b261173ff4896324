"""modelcc: a deep learning compiler, ``cc`` for models.

>>> import modelcc
>>> net = modelcc.compile("model.onnx")       # doctest: +SKIP
>>> y = net(x)                                # doctest: +SKIP
>>> net.save("model.mcc")                     # doctest: +SKIP

The compiler is imported when one of its names is first used (PEP 562), so that importing this
package, or its runtime alone, stays quick.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from modelcc.version import VERSION

if TYPE_CHECKING:
    from modelcc import nn as nn
    from modelcc import optim as optim
    from modelcc import training as training
    from modelcc.api import compile, export_onnx, import_model, load, verify
    from modelcc.artifact.errors import ArtifactError
    from modelcc.ir.errors import Error, ModelError
    from modelcc.model import Model
    from modelcc.nn.imported import load_onnx
    from modelcc.options import Limit, Options
    from modelcc.pipeline import StageError
    from modelcc.report.report import Report
    from modelcc.runtime.errors import InputError, LoadError, RunError
    from modelcc.tensor.complex_tensor import ComplexTensor
    from modelcc.tensor.control import cond, while_loop
    from modelcc.tensor.custom import checkpoint, custom_gradient, stop_gradient
    from modelcc.tensor.declared import Graph
    from modelcc.tensor.gradients import grad, value_and_grad
    from modelcc.tensor.lazy import TracingError
    from modelcc.tensor.loops import fori_loop, map, scan
    from modelcc.tensor.spec import Input
    from modelcc.tensor.tensor import Tensor
    from modelcc.tensor.tracing import jit, trace
    from modelcc.tensor.transforms import hessian, jacobian, jvp, vjp
    from modelcc.verification.verification import Verification

__version__ = VERSION

_HOME = MappingProxyType(
    {
        "ArtifactError": "modelcc.artifact.errors",
        "ComplexTensor": "modelcc.tensor.complex_tensor",
        "Error": "modelcc.ir.errors",
        "Graph": "modelcc.tensor.declared",
        "Input": "modelcc.tensor.spec",
        "InputError": "modelcc.runtime.errors",
        "Limit": "modelcc.options",
        "LoadError": "modelcc.runtime.errors",
        "Model": "modelcc.model",
        "ModelError": "modelcc.ir.errors",
        "Options": "modelcc.options",
        "Report": "modelcc.report.report",
        "RunError": "modelcc.runtime.errors",
        "StageError": "modelcc.pipeline",
        "Tensor": "modelcc.tensor.tensor",
        "TracingError": "modelcc.tensor.lazy",
        "Verification": "modelcc.verification.verification",
        "checkpoint": "modelcc.tensor.custom",
        "compile": "modelcc.api",
        "cond": "modelcc.tensor.control",
        "custom_gradient": "modelcc.tensor.custom",
        "export_onnx": "modelcc.api",
        "fori_loop": "modelcc.tensor.loops",
        "grad": "modelcc.tensor.gradients",
        "hessian": "modelcc.tensor.transforms",
        "import_model": "modelcc.api",
        "jacobian": "modelcc.tensor.transforms",
        "jit": "modelcc.tensor.tracing",
        "jvp": "modelcc.tensor.transforms",
        "load": "modelcc.api",
        "load_onnx": "modelcc.nn.imported",
        "map": "modelcc.tensor.loops",
        "scan": "modelcc.tensor.loops",
        "stop_gradient": "modelcc.tensor.custom",
        "trace": "modelcc.tensor.tracing",
        "value_and_grad": "modelcc.tensor.gradients",
        "verify": "modelcc.api",
        "vjp": "modelcc.tensor.transforms",
        "while_loop": "modelcc.tensor.control",
    }
)

_PACKAGES = ("nn", "optim", "training")
"""Packages that are there without an import of their own."""

__all__ = [
    "ArtifactError",
    "ComplexTensor",
    "Error",
    "Graph",
    "Input",
    "InputError",
    "Limit",
    "LoadError",
    "Model",
    "ModelError",
    "Options",
    "Report",
    "RunError",
    "StageError",
    "Tensor",
    "TracingError",
    "Verification",
    "checkpoint",
    "compile",
    "cond",
    "custom_gradient",
    "export_onnx",
    "fori_loop",
    "grad",
    "hessian",
    "import_model",
    "jacobian",
    "jit",
    "jvp",
    "load",
    "load_onnx",
    "map",
    "nn",
    "optim",
    "scan",
    "stop_gradient",
    "trace",
    "training",
    "value_and_grad",
    "verify",
    "vjp",
    "while_loop",
]


if not TYPE_CHECKING:  # else whatever is asked for would be an object to type checkers

    def __getattr__(name: str) -> object:
        """The public name, from the module that defines it."""
        if name in _PACKAGES:
            return import_module(f"modelcc.{name}")
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'modelcc' has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
