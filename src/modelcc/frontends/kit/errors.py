"""Errors of frontends, beyond the common :class:`ModelError`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index


@dataclass(frozen=True)
class Unsupported:
    """A node that modelcc cannot import: its operator, the operator's version, and the reason."""

    node: str
    operator: str
    version: str
    reason: str

    def __str__(self) -> str:
        version = f" ({self.version})" if self.version else ""
        return f"{self.node}: {self.operator}{version}: {self.reason}"


class UnsupportedModel(ModelError):  # noqa: N818 - the name users know
    """Everything in a model that modelcc cannot import, reported at once."""

    def __init__(self, model: str, nodes: Sequence[Unsupported]) -> None:
        kinds = dict.fromkeys(n.operator for n in nodes)
        count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
        lines = "".join(f"\n  {n}" for n in nodes)
        super().__init__(
            f"{count} of the model cannot be imported ({', '.join(kinds)}):{lines}",
            (model,),
            "values computed from these nodes were not looked at",
        )
        self.nodes = tuple(nodes)


OUR_FAULT = "this is a fault of modelcc; please report it with the model"
"""The hint of an error that no valid model should cause."""


class UnsupportedForm(Exception):  # noqa: N818 - control flow inside the importer, never shown
    """Raised by a handler: this node is valid, but not in a form that modelcc can import."""


def unsupported(reason: str) -> NoReturn:
    """Rejects the current node with ``reason``; the importer continues with the next one."""
    raise UnsupportedForm(reason)


def number_of(extent: Index, what: str) -> int:
    """``extent`` as a number; not supported if it depends on a named dimension."""
    if not isinstance(extent, int):
        unsupported(f"its {what} depends on dimension {extent}")
    return extent
