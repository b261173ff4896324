"""The ONNX standard's own test suite, through compiled code; ``make conformance`` runs it."""
