"""What a table of operators is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from modelcc.subsets.view import OperatorView


@dataclass(frozen=True)
class Limitation:
    """What operators must meet: ``broken`` tells how one does not, in words with its numbers
    (nothing if it does), and ``change`` what of the model would help."""

    broken: Callable[[OperatorView], str]
    change: str = ""


@dataclass(frozen=True)
class Subset:
    """A machine or runtime that takes some operators of TFLite.

    ``operators`` has the limits of each that it takes, ``absent`` what may take the place of
    others.  With ``one_partition`` nothing after the first operator that is not taken runs there.
    ``source`` is what the table is drawn from.
    """

    name: str
    description: str
    source: str
    operators: Mapping[str, tuple[Limitation, ...]]
    absent: Mapping[str, str]
    one_partition: bool = False
