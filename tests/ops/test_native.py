"""Every op on every sample as native code, against its NumPy reference; no op is named here.

All samples of an op are one graph, each with named dimensions of its own, so that an op is
compiled once.
"""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Sym, substitute, symbols
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import Array, TensorType
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes
from tests.ops.test_matrix import assert_close, expected

OPS = [op for op in MCC.ops if (op.has("compute") or op.has("algorithm")) and op.pure]


def told(sample: Sample) -> frozenset[str]:
    """Dimensions whose size an input tells."""
    types = [t for t in sample.operands if isinstance(t, TensorType)]
    return frozenset(e.name for t in types for e in t.shape if isinstance(e, Sym))


class Model:
    """One graph of many samples, with its inputs and the results wanted."""

    def __init__(self, op: type[Op]) -> None:
        self.build = GraphBuilder(op.__name__)
        self.feeds: dict[str, Array] = {}
        self.wanted: dict[str, Array] = {}
        for number, sample in enumerate(op.samples):
            self._add(op(**sample.attributes), sample, number)

    def graph(self) -> Graph:
        return self.build.build(list(self.wanted))

    def _add(self, op: Op, sample: Sample, number: int) -> None:
        known = told(sample)
        env = sizes(op, sample)
        renamed = {n: Sym(f"{n}{number}") if n in known else size for n, size in env.items()}
        operands: list[str] = []
        values = arrays(op, sample)
        for position, (operand, value) in enumerate(zip(sample.operands, values, strict=True)):
            if operand is None or value is None:
                operands.append("")
            elif isinstance(operand, np.ndarray):
                operands.append(self.build.constant(operand))
            else:
                shape = tuple(substitute(e, renamed) for e in operand.shape)
                name = f"x{number}_{position}"
                self.build.input(name, TensorType(shape, operand.dtype))
                self.feeds[name] = value
                operands.append(name)
        names = self.build.add(op.substitute(renamed), *operands)
        self.wanted |= dict(zip(names, expected(op, sample), strict=True))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_native_code_agrees_with_the_reference(op: type[Op]) -> None:
    run(Model(op))


def run(model: Model) -> None:
    net = modelcc.compile(model.graph(), threads=1, cache=None)
    got = net.run(model.feeds)
    wrong: list[str] = []
    for name, wanted in model.wanted.items():
        try:
            assert_close(got[name], wanted)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_most_samples_keep_their_named_dimensions() -> None:
    graphs = [Model(op).graph() for op in OPS]
    kept = [g for g in graphs if any(symbols(e) for t in g.types.values() for e in t.shape)]
    assert len(kept) > len(OPS) / 2
