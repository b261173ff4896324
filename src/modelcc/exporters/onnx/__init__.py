"""ONNX models of graphs: :func:`export_onnx` makes one, :func:`write_onnx` writes it as a file."""

from modelcc.exporters.onnx.file import write_onnx
from modelcc.exporters.onnx.graph import export_onnx

__all__ = ["export_onnx", "write_onnx"]
