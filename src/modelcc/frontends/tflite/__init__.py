"""The TFLite frontend: :func:`import_tflite` converts a model to a graph."""

from modelcc.frontends.tflite.frontend import import_tflite

__all__ = ["import_tflite"]
