"""Random models by NNSmith (Liu et al., "NNSmith: Generating Diverse and Valid Test Cases for Deep
Learning Compilers", ASPLOS 2023), as .onnx files.

    python -m fuzz.nnsmith_models -n 2000 --out models

Wants the packages nnsmith, torch, z3-solver, hydra-core, hydra-colorlog, multipledispatch and
appdirs, but nothing of modelcc; `make fuzz-models` installs them.  A model is made from its number
alone, if PYTHONHASHSEED is 0 (NNSmith picks from sets).
"""

from __future__ import annotations

import logging
import random
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from nnsmith.abstract.op import Constant, Input
from nnsmith.graph_gen import model_gen
from nnsmith.materialize import Model

SIZES = (5, 10, 15, 25)
"""Numbers of nodes, selected by a model's number."""

DTYPES = ("f16", "f32", "f64", "u8", "i8", "int16", "i32", "i64", "bool")
"""All that have operators in ONNX."""

SECONDS = 10
"""Solver time limit per model."""


@click.command()
@click.option("-n", "--count", default=100, show_default=True, help="Models to make.")
@click.option("--first", default=0, help="Number of the first one.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder.")
def main(count: int, first: int, out: Path) -> None:
    """Write NUMBER.onnx for each number; those that are there already are kept."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    # NNSmith emits operator set 14, which the newer exporter does not.
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    out.mkdir(parents=True, exist_ok=True)
    kind = Model.init("onnx")
    kind.add_seed_setter()
    operators = [operator for operator in kind.operators() if operator not in (Input, Constant)]
    made = 0
    for number in range(first, first + count):
        path = out / f"{number}.onnx"
        made += path.exists() or _written(kind, operators, number, path)
    click.echo(f"{made} of {count} models are in {out}")


def _written(kind: Any, operators: Any, number: int, path: Path) -> bool:
    """Whether the model could be generated: some have no solution, or no form in ONNX."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
    try:
        generated = model_gen(
            opset=operators,
            method="symbolic-cinit",
            seed=number,
            max_elem_per_tensor=1 << 14,
            max_nodes=SIZES[number % len(SIZES)],
            timeout_ms=SECONDS * 1000,
            rank_choices=None,
            dtype_choices=DTYPES,
        )
        model = kind.from_gir(generated.make_concrete())
        model.refine_weights()
        temporary = path.with_suffix(".part")
        model.dump(str(temporary))
        temporary.rename(path)
    except Exception as error:
        click.echo(f"{number}: {type(error).__name__}: {str(error)[:80]!r}", err=True)
        return False
    return True


if __name__ == "__main__":
    main()
