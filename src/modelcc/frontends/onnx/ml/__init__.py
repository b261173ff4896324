"""Handlers of ai.onnx.ml: trees, linear models, features, labels."""
