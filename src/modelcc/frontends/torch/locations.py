"""Source locations, in the user's Python, of operators of a traced graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import fx

_TORCH = str(Path(torch.__file__).parent)
_ROOT = re.compile(r"^L\['\w+'\]\.?")
"""Dynamo's name of the module that it has traced."""
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')


def location(node: fx.Node) -> tuple[str, ...]:
    """The module's path if there is one, and the node's name with file and line."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith(_TORCH)] or frames
    at = f" ({own[-1][0]}:{own[-1][1]})" if own else ""
    return (*_module(node), f"{node.name}{at}")


def _module(node: fx.Node) -> tuple[str, ...]:
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values() if entry[0]]
    return (_ROOT.sub("", paths[-1]) or "model",) if paths else ()


def operator_of(node: fx.Node) -> str:
    """The operator of a node, such as ``aten.add.Tensor``."""
    target = node.target
    if isinstance(target, str):
        return target
    name = getattr(target, "__module__", "") if not hasattr(target, "name") else ""
    text = str(target)
    return text if not name or "." in text else f"{name}.{getattr(target, '__name__', text)}"
