"""The ONNX frontend: :func:`import_onnx` turns a model into a graph."""

from modelcc.frontends.onnx.convert import import_onnx
from modelcc.frontends.onnx.errors import Unsupported, UnsupportedModel

__all__ = ["Unsupported", "UnsupportedModel", "import_onnx"]
