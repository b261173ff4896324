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
    from modelcc.api import compile, export_onnx, import_model, load, verify
    from modelcc.artifact.errors import ArtifactError
    from modelcc.ir.errors import Error, ModelError
    from modelcc.model import Model
    from modelcc.options import Limit, Options
    from modelcc.pipeline import StageError
    from modelcc.report.report import Report
    from modelcc.runtime.errors import InputError, LoadError, RunError
    from modelcc.verification.verification import Verification

__version__ = VERSION

_HOME = MappingProxyType(
    {
        "ArtifactError": "modelcc.artifact.errors",
        "Error": "modelcc.ir.errors",
        "InputError": "modelcc.runtime.errors",
        "Limit": "modelcc.options",
        "LoadError": "modelcc.runtime.errors",
        "Model": "modelcc.model",
        "ModelError": "modelcc.ir.errors",
        "Options": "modelcc.options",
        "Report": "modelcc.report.report",
        "RunError": "modelcc.runtime.errors",
        "StageError": "modelcc.pipeline",
        "Verification": "modelcc.verification.verification",
        "compile": "modelcc.api",
        "export_onnx": "modelcc.api",
        "import_model": "modelcc.api",
        "load": "modelcc.api",
        "verify": "modelcc.api",
    }
)

__all__ = [
    "ArtifactError",
    "Error",
    "InputError",
    "Limit",
    "LoadError",
    "Model",
    "ModelError",
    "Options",
    "Report",
    "RunError",
    "StageError",
    "Verification",
    "compile",
    "export_onnx",
    "import_model",
    "load",
    "verify",
]


if not TYPE_CHECKING:  # else whatever is asked for would be an object to type checkers

    def __getattr__(name: str) -> object:
        """The public name, from the module that defines it."""
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'modelcc' has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
