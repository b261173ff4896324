"""Every op on every sample as code of a target, against its NumPy reference; no op is named here.

All samples of an op are one graph, each with named dimensions of its own, so that an op is
compiled once.  Without ``--all-ops`` some of the samples are in it; the kernels of all are compiled
one by one in ``tests/targets/cpu/test_op_matrix.py``.  Samples that the target's list expects to
fail are compiled one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Sym, substitute, symbols
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import Array, TensorType, dtype_of
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes
from tests.axis import expected_failures, samples_of
from tests.ops.test_matrix import assert_close, expected
from tests.shares import ALL, Turn

SHARE = 4
OPS = [op for op in MCC.ops if (op.has("compute") or op.has("algorithm")) and op.pure]


def told(sample: Sample) -> frozenset[str]:
    """Dimensions whose size an input tells."""
    types = [t for t in sample.operands if isinstance(t, TensorType)]
    return frozenset(e.name for t in types for e in t.shape if isinstance(e, Sym))


class Model:
    """One graph of many samples, with its inputs and the results wanted.

    Arrays of a sample are constants, unless it has nothing else: that would be folded.
    """

    def __init__(self, op: type[Op], numbers: Sequence[int]) -> None:
        self.build = GraphBuilder(op.__name__)
        self.feeds: dict[str, Array] = {}
        self.wanted: dict[str, Array] = {}
        for number in numbers:
            sample = op.samples[number]
            self._add(op(**sample.attributes), sample, number)

    def graph(self) -> Graph:
        return self.build.build(list(self.wanted))

    def _add(self, op: Op, sample: Sample, number: int) -> None:
        known = told(sample)
        env = sizes(op, sample)
        renamed = {n: Sym(f"{n}{number}") if n in known else size for n, size in env.items()}
        operands: list[str] = []
        values = arrays(op, sample)
        folded = not any(isinstance(t, TensorType) for t in sample.operands)
        fixed = op.has("require_contents")
        for position, (operand, value) in enumerate(zip(sample.operands, values, strict=True)):
            if operand is None or value is None:
                operands.append("")
            elif isinstance(operand, np.ndarray) and (not folded or (fixed and position)):
                operands.append(self.build.constant(operand))
            else:
                shape = tuple(substitute(e, renamed) for e in operand.shape)
                name = f"x{number}_{position}"
                self.build.input(name, TensorType(shape, dtype_of(value)))
                self.feeds[name] = value
                operands.append(name)
        names = self.build.add(op.substitute(renamed), *operands)
        self.wanted |= dict(zip(names, expected(op, sample), strict=True))


@pytest.mark.targets("native")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_native_code_agrees_with_the_reference(op: type[Op], target: str, turn: Turn) -> None:
    check(op, target, expected_failures(target), turn)


def check(op: type[Op], target: str, failures: Mapping[str, str], turn: Turn = ALL) -> None:
    """A share of the samples passes, but for those in ``failures``, which fail."""
    passing, failing = samples_of(op, failures)
    if passing:
        run(Model(op, turn.of(passing, SHARE)), target)
    stale = [n for n in failing if not fails(Model(op, [n]), target)]
    assert not stale, f"expected to fail on {target}, but passed: {op.__name__} samples {stale}"


def fails(model: Model, target: str) -> bool:
    try:
        run(model, target)
    except Exception:
        return True
    return False


def run(model: Model, target: str) -> None:
    net = modelcc.compile(model.graph(), target, threads=1, cache=None)
    got = net.run(model.feeds)
    wrong: list[str] = []
    for name, wanted in model.wanted.items():
        try:
            assert_close(got[name], wanted)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_most_samples_keep_their_named_dimensions() -> None:
    graphs = [Model(op, range(len(op.samples))).graph() for op in OPS]
    kept = [g for g in graphs if any(symbols(e) for t in g.types.values() for e in t.shape)]
    assert len(kept) > len(OPS) / 2
