"""Export to ONNX models: :func:`export_onnx` builds one, :func:`write_onnx` writes it to a file."""

from modelcc.exporters.onnx.file import write_onnx
from modelcc.exporters.onnx.graph import export_onnx

__all__ = ["export_onnx", "write_onnx"]
