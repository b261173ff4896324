"""Operator support tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from modelcc.subsets.view import OperatorView


@dataclass(frozen=True)
class Limitation:
    """A constraint on operators: ``broken`` describes a violation with its numbers (empty if
    satisfied), and ``change`` a change of the model that would help."""

    broken: Callable[[OperatorView], str]
    change: str = ""


@dataclass(frozen=True)
class Subset:
    """A machine or runtime that supports some TFLite operators.

    ``operators`` has the constraints of each supported one, ``absent`` substitutes for others.
    With ``one_partition`` nothing after the first unsupported operator runs there.  ``source`` is
    where the table is from.
    """

    name: str
    description: str
    source: str
    operators: Mapping[str, tuple[Limitation, ...]]
    absent: Mapping[str, str]
    one_partition: bool = False
