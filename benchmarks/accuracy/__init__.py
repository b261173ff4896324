"""Accuracy of all models: compiled models against ONNX Runtime, one process each."""
