"""Handlers of the operators of ai.onnx."""
