"""Error messages for violated size constraints and indices out of bounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.artifact.manifest import CheckSpec, Manifest
from modelcc.ir.condition import Comparison
from modelcc.ir.index import (
    Index,
    Sym,
    broadcast_parts,
    evaluate,
    maximum,
    substitute,
    symbols,
    without,
)
from modelcc.ir.types import MOST_BYTES
from modelcc.runtime.errors import RunError

_WORDS: Mapping[Comparison, str] = MappingProxyType(
    {"<": "less than ", "<=": "at most ", "==": "", "!=": "other than ", ">": "more than ",
     ">=": "at least "}
)  # fmt: skip
_TURNED: Mapping[Comparison, Comparison] = MappingProxyType(
    {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
)


def run_failure(manifest: Manifest, status: int, index: int, sizes: Mapping[str, int]) -> RunError:
    """The error of a call with these ``sizes`` that ended with the entry point's ``status``, and
    the failing ``index``, if any."""
    checks, indices = manifest.checks, manifest.indices
    if 0 < status - len(checks) <= len(indices):
        bound = indices[status - len(checks) - 1]
        where = f"{', '.join(bound.source)}: " if bound.source else ""
        return RunError(where + bound.fault(index, sizes))
    if not 0 < status <= len(checks):
        return RunError(f"{manifest.name} stopped with status {status}")
    return RunError(f"{check_message(checks[status - 1], sizes)}; other inputs are needed")


def check_message(check: CheckSpec, sizes: Mapping[str, int]) -> str:
    """Location, subject, value and bound of a ``check`` that ``sizes`` violate."""
    condition = check.condition
    left, comparison, right = condition.left, condition.comparison, condition.right
    if isinstance(left, int):
        left, comparison, right = right, _TURNED[comparison], left
    where = f"{check.where}: " if check.where else ""
    if right == MOST_BYTES and not isinstance(left, Sym):
        found = f"its sizes call for {_value(left, sizes)} bytes{_given((left,), sizes)}"
        return f"{where}{found}, and no more than {right:,} can be had"
    either = _one_of(left) if (comparison, right) == ("==", 0) else None
    if either is not None:
        name, other = either
        bound = (
            f"{other:,}" if isinstance(other, int) else f"{_shown(other)}, {_value(other, sizes)}"
        )
        subject = f"'{_name(name)}' is {sizes.get(name, 0):,}"
        return f"{where}{subject}, but must be 1 or {bound}{_given((other,), sizes)}"
    subject = f"'{_name(left.name)}'" if isinstance(left, Sym) else _shown(left)
    bound = _bound(right, sizes)
    others = (right,) if isinstance(left, Sym) else (left, right)
    return (
        f"{where}{subject} is {_value(left, sizes)}, but must be {_WORDS[comparison]}{bound}"
        f"{_given(others, sizes)}"
    )


def _one_of(e: Index) -> tuple[str, Index] | None:
    """A name and an extent, if ``e`` is 0 where the name is 1 or that extent: a broadcast check."""
    for name in sorted(symbols(e)):
        other = without(e, name)
        if e == (Sym(name) - 1) * (Sym(name) - other):
            return name, _others(other, name)
    return None


def _others(extent: Index, name: str) -> Index:
    """The extents that ``name`` is broadcast with, if ``extent`` is the result of broadcasting."""
    parts = [part for part in broadcast_parts(extent) or () if part != Sym(name)]
    return maximum(*parts) if parts else extent


def _bound(e: Index, sizes: Mapping[str, int]) -> str:
    return f"{e:,}" if isinstance(e, int) else f"{_shown(e)}, {_value(e, sizes)}"


def _value(e: Index, sizes: Mapping[str, int]) -> str:
    try:
        return f"{evaluate(e, sizes):,}"
    except (KeyError, ZeroDivisionError):
        return "unknown"


def _shown(e: Index) -> str:
    """With the model's names; some have a trailing dot here, to distinguish them from internal
    ones."""
    return str(substitute(e, {name: Sym(_name(name)) for name in symbols(e)}))


def _name(symbol: str) -> str:
    return symbol.rstrip(".") or symbol


def _given(sides: tuple[Index, ...], sizes: Mapping[str, int]) -> str:
    names = sorted({name for side in sides for name in symbols(side)} & sizes.keys())
    listed = ", ".join(f"{name.rstrip('.') or name} = {sizes[name]:,}" for name in names)
    return f" (with {listed})" if listed else ""
