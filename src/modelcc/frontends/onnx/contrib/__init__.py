"""Handlers of onnxruntime's own operators (com.microsoft)."""
