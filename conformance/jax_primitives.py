"""``python -m conformance.jax_primitives``: jax's own cases of its primitives, compiled and run.

The cases are the harnesses that jax tests conversions with (``jax._src.internal_test_util``); they
need absl-py.  Results are compared with those of ``jax.jit``.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import click
import numpy as np

import modelcc.jax
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.ir.types import Array

TOLERANCES = MappingProxyType({"f8": 1e-8, "f4": 1e-4, "f2": 1e-2})
"""Accepted relative errors; an eighth for narrower types."""
NARROW = 0.125
SECONDS = 60


def harnesses() -> list[Any]:
    """The cases that jax implements on CPUs, sorted by name: jax generates them from sets, whose
    order differs between processes."""
    module: Any = import_module("jax._src.internal_test_util.test_harnesses")
    found = [harness for harness in module.all_harnesses if harness.filter("cpu")]
    return sorted(found, key=lambda harness: str(harness.fullname))


def outcome(harness: Any) -> tuple[str, str]:
    """``ok``, ``unsupported``, ``wrong`` or ``error``, and why."""
    jax: Any = import_module("jax")
    args = harness.dyn_args_maker(np.random.RandomState(0))
    try:
        compiled = modelcc.jax.compile(harness.dyn_fun, *args, cache=None, threads=1)
    except UnsupportedModel as error:
        return "unsupported", "; ".join(sorted({f"{n.operator}: {n.reason}" for n in error.nodes}))
    found = jax.tree.leaves(compiled(*args))
    wanted = jax.tree.leaves(jax.jit(harness.dyn_fun)(*args))
    reasons = (difference(np.asarray(a), np.asarray(b)) for a, b in zip(found, wanted, strict=True))
    reason = next(filter(None, reasons), "")
    return ("wrong" if reason else "ok"), reason


def difference(found: Array, wanted: Array) -> str:
    """How two results differ; empty if they agree."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype}{found.shape} for {wanted.dtype}{wanted.shape}"
    wrong = found != wanted if wanted.dtype.kind in "iub" else _far(found, wanted)
    count = int(np.count_nonzero(wrong))
    return f"{count} of {wrong.size}: {found[wrong][:3]}, not {wanted[wrong][:3]}" if count else ""


def _far(found: Array, wanted: Array) -> Array:
    if wanted.dtype.kind == "c":
        return _far_apart(found, wanted)
    tolerance = TOLERANCES.get(wanted.dtype.str[1:], NARROW)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.abs(b)
        scale = min(1.0, float(size[np.isfinite(size)].max(initial=0)))
        close = np.abs(a - b) <= tolerance * (size + scale / 10)
        return ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))


def _far_apart(found: Array, wanted: Array) -> Array:
    """Complex numbers with a differing part, unless they are close relative to their magnitude."""
    half = f"f{wanted.dtype.itemsize // 2}"
    a, b = (x.reshape(*x.shape, 1).view(half) for x in (found, wanted))
    with np.errstate(all="ignore"):
        near = np.abs(found - wanted) <= TOLERANCES[half] * np.abs(wanted)
    return _far(a, b).any(-1) & ~near


def timed(harness: Any) -> tuple[str, str]:
    """:func:`outcome`, including errors, within ``SECONDS``."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return outcome(harness)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def run(cases: Sequence[Any], path: Path) -> Iterator[tuple[str, ...]]:
    """Outcomes of the cases that are not in ``path`` yet, to which they are appended one by one.

    A case during which the process ended before is a crash.
    """
    known = {json.loads(line)[0] for line in path.read_text().splitlines()} if path.exists() else ()
    with path.open("a") as file:
        for case in cases:
            if case.fullname in known:
                continue
            print(json.dumps((case.fullname, "crash", "", case.group_name)), file=file, flush=True)
            row = (case.fullname, *timed(case), case.group_name)
            print(json.dumps(row), file=file, flush=True)
            yield row


@click.command()
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option("--every", default=1, show_default=True, help="Of so many cases one is run.")
@click.option("--outcomes", type=click.Path(path_type=Path), default=Path("primitives.jsonl"))
def main(only: str, every: int, outcomes: Path) -> None:
    """Compile and run jax's cases of its primitives; 64-bit types are enabled."""
    import_module("jax").config.update("jax_enable_x64", True)
    cases = [case for case in harnesses() if re.search(only, case.fullname)][::every]
    for row in run(cases, outcomes):
        if row[1] != "ok":
            click.echo(" | ".join(row)[:400])
    last = {row[0]: row for row in map(json.loads, outcomes.read_text().splitlines())}
    click.echo(dict(Counter(row[1] for row in last.values())))
    kinds = Counter((row[1], re.sub(r"[\d.]+", "#", row[2])[:100]) for row in last.values())
    for (kind, reason), count in kinds.most_common():
        if kind != "ok":
            click.echo(f"{count:5} {kind}: {reason}")


if __name__ == "__main__":
    main()
