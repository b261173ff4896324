"""``python -m conformance.torch_models``: models of PyTorch's libraries through compiled code.

A model gets random weights and is exported, imported and compiled; what comes out is compared with
eager execution.  Each has a process of its own, with a limit of time.
"""

from __future__ import annotations

import multiprocessing
import re
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
import torch
from torch.utils._pytree import tree_leaves

import modelcc
from conformance.torch_catalogue import CATALOGUES, Entry, NotBuilt
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.torch import import_exported
from modelcc.ir.errors import ModelError

PASSED, NOT_BUILT, REFUSED = "passed", "not built", "export refused by torch"
TOLERANCE = 1e-4
"""The greatest error, relative to the greatest element."""

_CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """What became of a model: ``reason`` starts with the kind of it; ``error`` is relative."""

    model: str
    reason: str
    error: float = 0.0
    seconds: float = 0.0


class Flat(torch.nn.Module):
    """A model whose results are the floating-point tensors among what it returns."""

    def __init__(self, model: torch.nn.Module, kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model, self._names = model, tuple(kwargs)

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        found = tree_leaves(self.model(**dict(zip(self._names, tensors, strict=True))))
        return [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]


def attempt(entry: Entry) -> Outcome:
    """The outcome for one model."""
    start = time.monotonic()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        reason, error = _attempt(entry)
    return Outcome(entry.name, reason, error, time.monotonic() - start)


def _attempt(entry: Entry) -> tuple[str, float]:
    torch.manual_seed(0)
    try:
        model, kwargs = entry.build()
        module, inputs = Flat(model.eval(), kwargs), tuple(kwargs.values())
        expected = module(*inputs)
    except NotBuilt as error:
        return f"{NOT_BUILT}: {error}", 0.0
    except Exception as error:
        return f"{NOT_BUILT}: {type(error).__name__}: {_line(error)}", 0.0
    try:
        program = torch.export.export(module, inputs, strict=False)
    except Exception as error:
        return f"{REFUSED}: {_line(error)}", 0.0
    try:
        net = modelcc.compile(import_exported(program), cache=None, optimize=0)
        found = net(*(x.numpy() for x in inputs))
    except UnsupportedModel as error:
        kinds = dict.fromkeys(f"{n.operator} ({n.reason})" for n in error.nodes)
        return f"unsupported: {'; '.join(kinds)}", 0.0
    except ModelError as error:
        return f"refused: {_line(error)}", 0.0
    except Exception as error:
        return f"crash: {type(error).__name__}: {_line(error)}", 0.0
    return _compared(found if isinstance(found, tuple) else (found,), expected)


def _compared(ours: Sequence[Any], theirs: Sequence[torch.Tensor]) -> tuple[str, float]:
    worst = 0.0
    for mine, yours in zip(ours, theirs, strict=True):
        if mine.shape != yours.shape:
            return f"wrong: shape {mine.shape}, not {tuple(yours.shape)}", 0.0
        a, b = torch.from_numpy(mine).double(), yours.double()
        same = torch.equal(a.isfinite(), b.isfinite())
        a, b = a[b.isfinite()], b[b.isfinite()]
        if not same or not b.numel():
            worst = max(worst, 0.0 if same else float("inf"))
            continue
        worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return (PASSED if worst <= TOLERANCE else f"wrong: error {worst:.1e}"), worst


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


def outcome(entry: Entry, seconds: float) -> Outcome:
    """:func:`attempt` in a process of its own."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_serve, args=(entry, theirs), daemon=True)
    process.start()
    theirs.close()
    found: Outcome | None = None
    try:
        if ours.poll(seconds):
            found = ours.recv()
    except EOFError:
        pass
    timed_out = found is None and process.is_alive()
    process.kill()
    process.join()
    if found is not None:
        return found
    what = f"more than {seconds:g} s" if timed_out else f"exit code {process.exitcode}"
    return Outcome(entry.name, f"crash: {what}")


def _serve(entry: Entry, pipe: Connection) -> None:
    torch.set_num_threads(1)
    pipe.send(attempt(entry))


def summary(found: Sequence[Outcome]) -> str:
    """Markdown: totals by library, reasons, and all models."""
    tried = [o for o in found if not o.reason.startswith((NOT_BUILT, REFUSED))]
    passed = sum(o.reason == PASSED for o in tried)
    kinds = Counter(o.reason.split(":")[0] for o in found)
    lines = ["# Models of PyTorch's libraries", "", f"{passed} of {len(tried)} exported ones pass."]
    lines += ["", "| models | outcome |", "|---|---|"]
    lines += [f"| {n} | {kind} |" for kind, n in kinds.most_common()]
    lines += ["", "| library | passed | exported |", "|---|---|---|"]
    for library in dict.fromkeys(o.model.split("/")[0] for o in found):
        own = [o for o in tried if o.model.startswith(f"{library}/")]
        lines.append(f"| {library} | {sum(o.reason == PASSED for o in own)} | {len(own)} |")
    lines += ["", "| model | outcome | error | seconds |", "|---|---|---|---|"]
    lines += [
        f"| {o.model} | {o.reason[:200].replace('|', '/')} | {o.error:.1e} | {o.seconds:.0f} |"
        for o in found
    ]
    return "\n".join(lines) + "\n"


def entries(pattern: str) -> Iterator[Entry]:
    """The models whose names match."""
    names = re.compile(pattern)
    return (e for catalogue in CATALOGUES for e in catalogue() if names.search(e.name))


@click.command()
@click.option("-k", "pattern", default="", help="Regular expression that names must contain.")
@click.option("--seconds", default=300.0, show_default=True, help="What a model may take.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--page", type=click.Path(path_type=Path), help="Write the summary there.")
def main(pattern: str, seconds: float, jobs: int, page: Path | None) -> None:
    """Run models of timm, transformers and torchvision through compiled code."""
    torch.set_num_threads(1)
    found: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        for one in pool.map(lambda entry: outcome(entry, seconds), entries(pattern)):
            found.append(one)
            print(f"{one.model}: {one.reason} {one.error:.1e} {one.seconds:.0f} s", flush=True)
            if page is not None:
                page.write_text(summary(found), "utf-8")
    print(f"\n{summary(found)}")


if __name__ == "__main__":
    main()
