"""Handlers of ai.onnx.preview.training: gradients and optimizers."""
