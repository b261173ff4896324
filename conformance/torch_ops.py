"""``python -m conformance.torch_ops``: torch's own database of operators through compiled code.

Every sample of every entry becomes a module whose tensors are inputs, is exported, imported and
compiled, and what comes out is compared with eager execution by the entry's own tolerance; then
the same by ``torch.compile``, with gradients.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

import modelcc
from conformance import torch_page, torch_record
from conformance.torch_database import (
    PASSED,
    REFUSED,
    Half,
    Outcome,
    Share,
    Wrapped,
    difference,
    first_line,
    judged,
    label,
)
from conformance.torch_gradients import GRADIENTS
from conformance.torch_processes import outcomes
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.torch import import_exported
from modelcc.frontends.torch.dtypes import array_of
from modelcc.ir.errors import ModelError

RANDOM = f"{PASSED} (random: type and shape)"
UNINITIALISED = re.compile(r"empty")
"""Entries with uninitialised results."""
CHUNK = 10
"""Entries per process."""
FAMILIES = {
    "UnaryUfuncInfo": "of one operand",
    "BinaryUfuncInfo": "of two operands",
    "ReductionOpInfo": "reductions",
    "ShapeFuncInfo": "shapes",
}
"""Families by the class of entries without a namespace."""


def attempt(op: Any, some: Sequence[Any]) -> str:
    """The outcome of samples, in one module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _attempt(op, some)


def _attempt(op: Any, some: Sequence[Any]) -> str:
    module = Wrapped(op, some)
    tensors = module.tensors()
    try:
        expected = _eager(module)
        program = torch.export.export(module, module.tensors())
    except Exception as error:  # torch may raise anything
        return f"{REFUSED}: {first_line(error)}"
    if not expected:
        return f"{REFUSED}: no tensor comes out"
    try:
        graph = import_exported(program)
        net = modelcc.compile(graph, cache=None, optimize=0)
        feeds = zip((spec.name for spec in net.inputs), map(array_of, tensors), strict=True)
        results = [_tensor(y) for y in net.run(dict(feeds)).values()]
    except UnsupportedModel as error:
        kinds = dict.fromkeys(f"{n.operator} ({n.reason})" for n in error.nodes)
        return f"unsupported: {'; '.join(kinds)}"
    except ModelError as error:
        return f"refused: {first_line(error)}"
    except Exception as error:
        return f"crash: {type(error).__name__}: {first_line(error)}"
    exact = not (UNINITIALISED.search(op.name) or _draws(program))
    if exact:
        return judged(op, results, expected, lambda: _eager(module.widened()))
    unequal = difference(op, results, expected, exact)
    return f"wrong: {unequal}" if unequal else RANDOM


def _tensor(array: Any) -> torch.Tensor:
    if array.dtype.name == "bfloat16":  # which torch does not accept from NumPy
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _draws(program: Any) -> bool:
    """Whether operators draw random numbers, which differ from torch's."""
    tagged = (getattr(node.target, "tags", ()) for node in program.graph.nodes)
    return any(torch.Tag.nondeterministic_seeded in tags for tags in tagged)


def _eager(module: Wrapped) -> list[torch.Tensor]:
    with torch.no_grad():
        return [_real(y) for y in module(*module.tensors())]


def _real(y: torch.Tensor) -> torch.Tensor:
    """A complex result in our form: with its parts in a last axis."""
    return torch.view_as_real(y.resolve_conj()) if y.is_complex() else y


FORWARD = Half(attempt, gradients=False)


def tried(half: Half, pattern: str, share: Share, jobs: int) -> Iterator[Outcome]:
    """Outcomes of all samples, yielded entry by entry as they are found."""
    ops = half.entries(pattern)
    chunks = [ops[i : i + CHUNK] for i in range(0, len(ops), CHUNK)]
    with ThreadPoolExecutor(jobs) as pool:
        for own in pool.map(lambda some: list(outcomes(half, some, share)), chunks):
            yield from own
            for name in dict.fromkeys(o.entry for o in own):
                _print([o for o in own if o.entry == name])


def _print(own: Sequence[Outcome]) -> None:
    why = Counter(o.reason[:160] for o in own if o.reason not in (PASSED, RANDOM))
    print(f"{own[0].entry}: {sum(o.passed for o in own)}/{len(own)}", *why.items(), flush=True)


def family(op: Any) -> str:
    """The namespace of an entry, else its kind of operator."""
    return op.name.rpartition(".")[0] or FAMILIES.get(type(op).__name__, "others")


@click.command()
@click.option("-k", "pattern", default="", help="Regular expression that names must contain.")
@click.option("--share", default=1, show_default=True, help="One sample in this many, or 0.")
@click.option("--gradients", default=1, show_default=True, help="The same of the second half.")
@click.option("--first", default=0, show_default=True, help="The first sample of those.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--record", type=click.Path(path_type=Path), help="What is there is not tried again.")
@click.option("--page", type=click.Path(path_type=Path), help="Write there what is new.")
def main(
    pattern: str, share: int, gradients: int, first: int, jobs: int, record: Path | None,
    page: Path | None,
) -> None:  # fmt: skip
    """Run torch's database of operators through compiled code.

    A half of which no sample is asked for stays in the page as it is.
    """
    torch.set_num_threads(1)
    os.environ["MODELCC_JOBS"] = "1"
    _warm()
    start = time.monotonic()
    old = page is not None and page.exists() and torch_page.read(page.read_text("utf-8"))
    kept = old[0] if old else [torch_page.Section(0, (), ())] * 2
    sections = list[torch_page.Section]()
    for half, of, before in zip((FORWARD, GRADIENTS), (share, gradients), kept, strict=True):
        known = torch_record.read(record, half.gradients)
        wanted = Share(of, first, frozenset((o.entry, o.index) for o in known))
        new = tried(half, pattern, wanted, jobs) if of else ()
        found = [*known, *torch_record.kept(new, record, half.gradients)]
        sections.append(_section(half, found, of) if of else before)
    text = torch_page.text(sections, f"torch {torch.__version__.split('+')[0]}")
    if page is not None:
        page.write_text(text, "utf-8")
    print(f"\n{text}\n{time.monotonic() - start:.0f} s")


def _warm() -> None:
    """Makes PyTorch and modelcc load lazy modules, once for all processes."""
    for half in (FORWARD, GRADIENTS):
        op, *_ = half.entries("^add$")
        (_, sample), *_ = half.samples(op, Share())
        half.attempt(op, [sample])


def _section(half: Half, found: Sequence[Outcome], share: int) -> torch_page.Section:
    families = {label(op): family(op) for op in half.entries("")}
    return torch_page.section(found, families, share)


if __name__ == "__main__":
    main()
