"""The PyTorch frontend: :func:`import_torch` converts programs of ``torch.export`` to graphs."""

from modelcc.frontends.torch.exported import import_exported
from modelcc.frontends.torch.exporting import exported, import_torch

__all__ = ["exported", "import_exported", "import_torch"]
