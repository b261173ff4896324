"""The TFLite frontend: :func:`import_tflite` turns a model into a graph."""

from modelcc.frontends.tflite.frontend import import_tflite

__all__ = ["import_tflite"]
