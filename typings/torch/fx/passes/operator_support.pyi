from collections.abc import Mapping
from typing import Any

from torch.fx import Node

class OperatorSupportBase:
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool: ...
