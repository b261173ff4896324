"""``python -m conformance.stablehlo_cases FOLDER``: cases of the StableHLO repository, compiled.

FOLDER is a checkout of openxla/stablehlo.  Functions of ``stablehlo/tests/interpret`` and modules
of ``stablehlo/testdata`` compute their results and say what these must be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

import modelcc
from conformance.jax_primitives import difference
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.stablehlo.convert import convert
from modelcc.frontends.stablehlo.inputs import module_inputs
from modelcc.frontends.stablehlo.module import HloModule
from modelcc.frontends.stablehlo.reading import read_text

CONSTANT = re.compile(r"check\.\w+_const (%[\w#]+),\s*(dense<[^:]*>)[^:]*?:\s*(tensor<.*>)")
VALUES = re.compile(r"check\.expect_\w+ (%[\w#]+), (%[\w#]+)(?:, .*)? : (tensor<[^,]*>)")


def cases(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each module that checks something."""
    for path in sorted((folder / "stablehlo" / "testdata").glob("*.mlir")):
        text = path.read_text()
        if "@check." in text:
            yield path.stem, text
    for path in sorted((folder / "stablehlo" / "tests" / "interpret").glob("*.mlir")):
        for number, text in enumerate(path.read_text().split("// -----")):
            if "check." in text and text.count("func.func") == 1:
                yield f"{path.stem}/{number}", returning(text)


def returning(text: str) -> str:
    """A function that returns what it checks, and what that must be, in pairs."""
    pairs: list[tuple[str, str]] = []

    def constant(match: re.Match[str]) -> str:
        value, contents, type = match.groups()
        pairs.extend([(value, type), (f"%wanted{len(pairs)}", type)])
        return f"{pairs[-1][0]} = stablehlo.constant {contents} : {type}"

    def values(match: re.Match[str]) -> str:
        one, other, type = match.groups()
        pairs.extend([(one, type), (other, type)])
        return ""

    text = VALUES.sub(values, CONSTANT.sub(constant, text))
    types = ", ".join(type for _, type in pairs)
    text = re.sub(r"func\.func @\w+\(\)", f"func.func @main() -> ({types})", text)
    names = ", ".join(name for name, _ in pairs)
    return re.sub(r"(func\.)?return *$", f"func.return {names} : {types}", text, flags=re.M)


def checked(module: HloModule) -> HloModule:
    """``main`` results in the operands of its checks, which are left out."""
    main, results = module.main, list[int]()
    kept = list(main.body.operations)
    for op in main.body.operations:
        if str(op.attributes.get("call_target_name", "")).startswith("check."):
            results += op.operands[:2]
            kept.remove(op)
    if not results:
        return module
    body = replace(main.body, operations=tuple(kept), results=tuple(results))
    labels = ("",) * len(results)
    return replace(
        module, functions={**module.functions, "main": replace(main, body=body,
                                                               result_labels=labels)},
    )  # fmt: skip


def outcome(text: str) -> tuple[str, str]:
    """``ok``, ``unsupported``, ``wrong``, ``error`` or ``unreadable``, and why."""
    try:
        module = checked(read_text(text))
    except modelcc.ModelError as error:
        return "unreadable", str(error)
    try:
        graph = convert(module, module_inputs(module, {}))
        net = modelcc.compile(graph, cache=None, threads=1)
        found = list(net.run({}).values())
    except UnsupportedModel as error:
        return "unsupported", "; ".join(sorted({f"{n.operator}: {n.reason}" for n in error.nodes}))
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    pairs = zip(found[::2], found[1::2], strict=True)
    reason = next(filter(None, (difference(np.asarray(a), np.asarray(b)) for a, b in pairs)), "")
    return ("wrong" if reason else "ok"), reason


def run(chosen: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Name and outcome of each case."""
    for name, text in chosen:
        yield name, *outcome(text)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option("--every", default=1, show_default=True, help="Of so many cases one is run.")
def main(folder: Path, only: str, every: int) -> None:
    """Compile and run the cases in FOLDER."""
    counts: Counter[str] = Counter()
    for name, kind, reason in run([c for c in cases(folder) if re.search(only, c[0])][::every]):
        counts[kind] += 1
        if kind != "ok":
            click.echo(f"{name}: {kind}: {reason[:300]}")
    click.echo(dict(counts))


if __name__ == "__main__":
    main()
