"""The ONNX frontend: :func:`import_onnx` converts a model to a graph."""

from modelcc.frontends.kit.errors import Unsupported, UnsupportedModel
from modelcc.frontends.onnx.convert import import_onnx

__all__ = ["Unsupported", "UnsupportedModel", "import_onnx"]
