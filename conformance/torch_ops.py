"""``python -m conformance.torch_ops``: torch's own database of operators through compiled code.

Every sample of every entry becomes a module whose tensors are inputs, is exported, imported and
compiled, and what comes out is compared with eager execution by the entry's own tolerance.
Entries run in processes of their own: a crash or a hang costs one sample.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal.opinfo.core import DecorateInfo
from torch.utils import _pytree as pytree

import modelcc
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.torch import import_exported
from modelcc.frontends.torch.dtypes import array_of
from modelcc.ir.errors import ModelError

PASSED, REFUSED, RANDOM = "passed", "export refused by torch", "passed (random: type and shape)"
SECONDS = 60.0
"""What a sample may take."""
TOGETHER = 8
"""Samples that are compiled at once, and one by one only where that fails."""
BATCH = "several"
"""What is sent as they start; the place of a sample that is alone."""
DTYPES = (torch.float32, torch.int64, torch.bool)
UNINITIALISED = re.compile(r"empty")
"""Entries whose results have no contents of their own."""

_CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """What became of sample ``index`` of an entry: ``reason`` starts with the kind of it."""

    entry: str
    index: int
    reason: str

    @property
    def passed(self) -> bool:
        return self.reason in (PASSED, RANDOM)


class Wrapped(torch.nn.Module):
    """An operator called some times on tensors, which are inputs, and other arguments."""

    def __init__(self, op: Any, leaves: Sequence[Any], spec: Any) -> None:
        super().__init__()
        self._op, self._leaves, self._spec = op, tuple(leaves), spec

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(x.clone() for x in tensors)  # what changes its operand changes a copy
        whole = [next(given) if isinstance(x, torch.Tensor) else x for x in self._leaves]
        calls = pytree.tree_unflatten(whole, self._spec)
        found = pytree.tree_leaves([self._op(*args, **kwargs) for args, kwargs in calls])
        return [x for x in found if isinstance(x, torch.Tensor)]


def entries(pattern: str) -> list[Any]:
    """Entries with a type that is tried, whose names match."""
    names = re.compile(pattern)
    return [op for op in database.op_db if names.search(label(op)) and _dtype(op) is not None]


def label(op: Any) -> str:
    """The name of an entry, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def _dtype(op: Any) -> torch.dtype | None:
    return next((d for d in DTYPES if d in op.supported_dtypes("cpu")), None)


def samples(op: Any, share: int) -> list[tuple[int, Any]]:
    """Every ``share``-th sample, with its place."""
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", _dtype(op), requires_grad=False)
    return [(i, s) for i, s in enumerate(made) if i % share == 0]


def attempt(op: Any, *some: Any) -> str:
    """The outcome of samples, in one module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _attempt(op, some)


def _attempt(op: Any, some: Sequence[Any]) -> str:
    leaves, spec = pytree.tree_flatten([((s.input, *s.args), s.kwargs) for s in some])
    tensors = tuple(x.detach() for x in leaves if isinstance(x, torch.Tensor))
    module = Wrapped(op.op, leaves, spec)
    try:
        expected = _eager(module, tensors)
        program = torch.export.export(module, _copies(tensors))
    except Exception as error:  # torch raises whatever it likes
        return f"{REFUSED}: {_line(error)}"
    if not expected:
        return f"{REFUSED}: no tensor comes out"
    try:
        graph = import_exported(program)
        net = modelcc.compile(graph, cache=None, optimize=0)
        found = net(*map(array_of, tensors))
        results = [_tensor(y) for y in (found if isinstance(found, tuple) else (found,))]
    except UnsupportedModel as error:
        kinds = dict.fromkeys(f"{n.operator} ({n.reason})" for n in error.nodes)
        return f"unsupported: {'; '.join(kinds)}"
    except ModelError as error:
        return f"refused: {_line(error)}"
    except Exception as error:
        return f"crash: {type(error).__name__}: {_line(error)}"
    return _compared(op, results, expected, not (UNINITIALISED.search(op.name) or _draws(program)))


def _tensor(array: Any) -> torch.Tensor:
    if array.dtype.name == "bfloat16":  # which torch does not take from NumPy
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _draws(program: Any) -> bool:
    """Whether operators draw random numbers, which are others than torch's."""
    tagged = (getattr(node.target, "tags", ()) for node in program.graph.nodes)
    return any(torch.Tag.nondeterministic_seeded in tags for tags in tagged)


def _eager(module: Wrapped, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    with torch.no_grad():
        return module(*_copies(tensors))


def _copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(x.clone() for x in tensors)


def _compared(op: Any, ours: Sequence[Any], theirs: Sequence[torch.Tensor], exact: bool) -> str:
    try:
        for mine, yours in zip(ours, theirs, strict=True):
            assert mine.shape == yours.shape, f"shape {mine.shape}, not {yours.shape}"
            assert mine.dtype == yours.dtype, f"dtype {mine.dtype}, not {yours.dtype}"
            if exact:
                close = _tolerance(op, yours.dtype)
                torch.testing.assert_close(mine, yours.contiguous(), equal_nan=True, **close)
    except (AssertionError, ValueError) as error:
        return f"wrong: {' '.join(str(error).split())[:200]}"
    return PASSED if exact else RANDOM


def _tolerance(op: Any, dtype: torch.dtype) -> dict[str, float]:
    """The largest that the entry's decorators ask for; none for torch's defaults."""
    found = [
        tolerance.overrides[dtype]
        for info in op.decorators if isinstance(info, DecorateInfo)
        for tolerance in info.decorators
        if info.device_type in (None, "cpu") and dtype in getattr(tolerance, "overrides", {})
    ]  # fmt: skip
    default = 1.3e-6 if dtype == torch.float32 else 1e-7
    if not found or not dtype.is_floating_point:
        return {}
    return {"atol": max(t.atol for t in found), "rtol": max(default, *(t.rtol for t in found))}


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def outcomes(op: Any, share: int) -> list[Outcome]:
    """Of every sample of an entry; the process goes on in a new one where it broke off."""
    found: list[Outcome] = []
    together = TOGETHER
    while True:
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        args = (op, share, len(found), together, theirs)
        process = _CONTEXT.Process(target=_serve, args=args, daemon=True)
        process.start()
        theirs.close()
        broken = ""
        for message in _received(ours):
            broken = message if isinstance(message, str) else ""
            if isinstance(message, Outcome):
                found.append(message)
        process.kill()
        process.join()
        if not broken:
            return found
        together = 1
        if broken == BATCH:
            continue
        code = process.exitcode
        what = f"more than {SECONDS:g} s" if code == -9 else f"exit code {code}"
        found.append(Outcome(label(op), int(broken), f"crash: {what}"))


def _received(pipe: Connection) -> Iterator[Outcome | str]:
    while True:
        try:
            if not pipe.poll(SECONDS):
                return
            yield pipe.recv()
        except EOFError:
            return


def _serve(op: Any, share: int, done: int, together: int, pipe: Connection) -> None:
    """Sends what starts, as text, and what became of each sample."""
    try:
        made = samples(op, share)
    except Exception as error:
        pipe.send(Outcome(label(op), 0, f"{REFUSED}: no samples: {_line(error)}"))
        return
    for start in range(done, len(made), together):
        some = made[start : start + together]
        pipe.send(BATCH if together > 1 else str(some[0][0]))
        whole = attempt(op, *(sample for _, sample in some))
        for index, sample in some:
            pipe.send(str(index))
            alone = whole if whole == PASSED or len(some) == 1 else attempt(op, sample)
            pipe.send(Outcome(label(op), index, alone))


def summary(found: Sequence[Outcome]) -> str:
    """Markdown: totals, reasons with their operators, and all entries that are not passed."""
    by_entry: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_entry.setdefault(outcome.entry, []).append(outcome)
    whole = sum(all(o.passed for o in own) for own in by_entry.values())
    partly = sum(any(o.passed for o in own) for own in by_entry.values()) - whole
    reasons = Counter(re.split(r": |; ", o.reason)[0] for o in found)
    lines = ["# torch's operators (op_db)", ""]
    lines.append(f"{len(by_entry)} entries: {whole} wholly, {partly} partly passed; "
                 f"{sum(o.passed for o in found)} of {len(found)} samples.")  # fmt: skip
    lines += ["", "| samples | outcome |", "|---|---|"]
    lines += [f"| {n} | {reason} |" for reason, n in reasons.most_common()]
    lines += ["", "## By reason", "", "| samples | entries | reason |", "|---|---|---|"]
    failed = Counter(o.reason[:160] for o in found if not o.passed)
    names = {reason: sorted({o.entry for o in found if o.reason[:160] == reason})
             for reason in failed}  # fmt: skip
    lines += [f"| {n} | {', '.join(names[r])} | {r.replace('|', '/')} |"
              for r, n in failed.most_common()]  # fmt: skip
    lines += [
        "",
        "## Entries not wholly passed",
        "",
        "| entry | passed | samples |",
        "|---|---|---|",
    ]
    for name, own in sorted(by_entry.items()):
        count = sum(o.passed for o in own)
        if count < len(own):
            lines.append(f"| {name} | {count} | {len(own)} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("-k", "pattern", default="", help="Regular expression that names must contain.")
@click.option("--share", default=1, show_default=True, help="One sample in this many.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--page", type=click.Path(path_type=Path), help="Write the summary there.")
def main(pattern: str, share: int, jobs: int, page: Path | None) -> None:
    """Run torch's database of operators through compiled code."""
    torch.set_num_threads(1)
    os.environ["MODELCC_JOBS"] = "1"
    first = entries("^abs$")[0]
    attempt(first, *(s for _, s in samples(first, 1)))  # what is loaded once is there for all
    found: list[Outcome] = []
    start = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for own in pool.map(lambda op: outcomes(op, share), entries(pattern)):
            found += own
            if own:
                why = Counter(o.reason[:110] for o in own if not o.passed)
                passed = sum(o.passed for o in own)
                print(f"{own[0].entry}: {passed}/{len(own)}", *why.items(), flush=True)
    text = summary(found)
    if page is not None:
        page.write_text(text, "utf-8")
    print(f"\n{text}\n{time.monotonic() - start:.0f} s", file=sys.stdout)


if __name__ == "__main__":
    main()
