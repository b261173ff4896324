from collections.abc import Callable, Iterator
from typing import Any

from torch.nn import Module

class Node:
    name: str
    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    users: dict[Node, None]
    all_input_nodes: list[Node]

class Graph:
    nodes: Nodes
    def output_node(self) -> Node: ...
    def __getattr__(self, name: str) -> Any: ...

class Nodes:
    def __iter__(self) -> Iterator[Node]: ...

class GraphModule(Module):
    graph: Graph
    def __getattr__(self, name: str) -> Any: ...

def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any: ...
