"""Are all models right?  Compiled models against ONNX Runtime, one process each."""
