"""The target as an axis of tests.

Tests with the mark ``targets`` run on the targets that it names, or on those that pytest's
``--target`` does: built-in ones and those of other packages, which need no line here.  What a
target cannot do is written in ``expected_failures.toml``: for a built-in one in
``tests/targets/NAME``, else beside the module that makes it.  A line is ``Cast-7 = "why"`` (an op
and the number of its sample) or ``test_mlp = "why"`` (a test of ``test_models.py``).

``python -m tests.axis`` prints pytest's options for every place on the axis that runs here;
``python -m tests.axis c`` those of one target.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from modelcc.ir.op import Op
from modelcc.targets.base import TargetOptions
from modelcc.targets.registry import BUILT_IN, GROUP, make_target, target_names
from modelcc.targets.source_target import SourceTarget
from tests.drivers import missing_driver
from tests.emulated.aarch64_target import missing
from tests.levels import runnable

HERE = Path(__file__).parent
FILE = "expected_failures.toml"


@cache
def expected_failures(target: str) -> Mapping[str, str]:
    """What is known to fail on ``target``, and why."""
    path = _list_of(target)
    return MappingProxyType(read_failures(path.read_text("utf-8")) if path.is_file() else {})


def read_failures(text: str) -> dict[str, str]:
    """The lines of a list; ValueError for one without a reason."""
    found: dict[str, Any] = tomllib.loads(text)
    bare = [case for case, reason in found.items() if not (isinstance(reason, str) and reason)]
    if bare:
        raise ValueError(f"{FILE}: no reason is given for {', '.join(bare)}")
    return found


def _list_of(target: str) -> Path:
    if target in BUILT_IN:
        return HERE / "targets" / target / FILE
    (point,) = entry_points(group=GROUP, name=target)
    spec = find_spec(point.module)
    assert spec is not None and spec.origin is not None, f"no module {point.module}"
    return Path(spec.origin).with_name(FILE)


def samples_of(op: type[Op], failures: Mapping[str, str]) -> tuple[list[int], list[int]]:
    """Numbers of the op's samples: those that must pass, and those that must not."""
    numbers = range(len(op.samples))
    failing = [n for n in numbers if f"{op.__name__}-{n}" in failures]
    return [n for n in numbers if n not in failing], failing


def unknown_failures(
    failures: Iterable[str], ops: Iterable[type[Op]], tests: Iterable[str]
) -> list[str]:
    """Those that name neither a sample nor a test."""
    samples = {f"{op.__name__}-{n}" for op in ops for n in range(len(op.samples))}
    return sorted({*failures} - samples - {*tests})


def parameters(targets: Sequence[str], test: str) -> list[ParameterSet]:
    """``targets`` for the test of this name, those on whose list it is marked, and those without
    a driver here."""
    reasons = {name: expected_failures(name).get(test) for name in targets}
    marks = {n: [pytest.mark.xfail(reason=r, strict=True)] for n, r in reasons.items() if r}
    for name in targets:
        lacking = missing_driver(name)
        marks |= {name: [pytest.mark.skip(reason=lacking)]} if lacking else {}
    return [pytest.param(name, marks=marks.get(name, ())) for name in targets]


def compiling() -> list[str]:
    """Targets that make more than source text for others."""
    made = {name: make_target(name, TargetOptions()) for name in target_names()}
    return [name for name, target in made.items() if not isinstance(target, SourceTarget)]


def places() -> list[str]:
    """Options for processor levels, this processor, every other target that there is, and Arm
    code where it can be emulated."""
    levels = [f"--target native --cpu {level}" for level in runnable()]
    others = [f"--target {n}" for n in compiling() if n != "native" and not missing_driver(n)]
    emulated = ["--target aarch64 --target-package tests/emulated"]
    return [*levels, *others, *([] if missing() else emulated)]


def main(names: Sequence[str]) -> None:
    """Print the options of the targets called so, or of all."""
    chosen = [place for place in places() if not names or place.split()[1] in names]
    if not chosen:
        known = ", ".join(dict.fromkeys(place.split()[1] for place in places()))
        sys.exit(f"no target {' '.join(names)} runs here; those that do: {known}")
    print("\n".join(chosen))


if __name__ == "__main__":
    main(sys.argv[1:])
