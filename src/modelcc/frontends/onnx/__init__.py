"""The ONNX frontend: :func:`import_onnx` turns a model into a graph."""

from modelcc.frontends.kit.errors import Unsupported, UnsupportedModel
from modelcc.frontends.onnx.convert import import_onnx

__all__ = ["Unsupported", "UnsupportedModel", "import_onnx"]
