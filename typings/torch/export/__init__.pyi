from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule

class ExportedProgram:
    graph: Graph
    graph_module: GraphModule
    graph_signature: ExportGraphSignature
    range_constraints: Mapping[Any, Any]
    state_dict: Mapping[str, Tensor]
    constants: Mapping[str, Any]
    def run_decompositions(
        self, decomp_table: Mapping[Any, Callable[..., Any]]
    ) -> ExportedProgram: ...
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
