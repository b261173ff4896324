"""A zoo of ONNX models with random weights: `python -m benchmarks.zoo --help`."""
