"""The PyTorch frontend: :func:`import_exported` turns an exported program into a graph."""

from modelcc.frontends.torch.exported import import_exported

__all__ = ["import_exported"]
