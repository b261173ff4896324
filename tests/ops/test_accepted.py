"""What the table of ops says of element types is what compiles, on every target.

Each run looks at a sixteenth of the pairs of an op and a type on each target; all shares
together are the table.
"""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import DIM, symbols
from modelcc.ir.op import Op
from modelcc.ir.types import C64, F32, DType
from modelcc.ops.accepted import accepted, form
from modelcc.ops.catalog import MCC
from modelcc.ops.generate import Full
from modelcc.pipeline import before_block, run_stages
from tests.axis import compiling
from tests.machines import chosen_options

SHARE = 16
OPS = [op for op in MCC.ops if any(map(op.has, ("compute", "algorithm", "decompose")))]
PAIRS = [(op, dtype) for op in OPS for dtype in accepted(op)]


def _graph(op: type[Op], dtype: DType) -> Graph:
    found = form(op, dtype)
    assert found is not None
    made, types = found
    names = {n for t in types if t for extent in t.shape for n in symbols(extent)}
    build = GraphBuilder("one", dict.fromkeys(sorted({*names, *made.symbols()}), DIM))
    given = next(s.operands for s in op.samples if op(**s.attributes) == made)
    inputs = [
        build.constant(array.astype(t.dtype.numpy))
        if t and i and made.has("require_contents") and isinstance(array, np.ndarray)
        else build.input(f"x{i}", t)
        if t
        else ""
        for i, (t, array) in enumerate(zip(types, given, strict=True))
    ]
    return build.build(list(build.add(made, *inputs)))


def _emitted(graph: Graph, target: str) -> object:
    options = chosen_options(target=target)
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "build")
    return run_stages(tuple(s for s in stages if s.block != "import"), graph)


@pytest.mark.share(SHARE, "target", "share")
@pytest.mark.parametrize("target", compiling())
@pytest.mark.parametrize("share", range(SHARE))
def test_every_accepted_type_has_code(target: str, share: int) -> None:
    wrong: list[str] = []
    for op, dtype in PAIRS[share::SHARE]:
        try:
            _emitted(_graph(op, dtype), target)
        except Exception as error:
            wrong.append(f"{op.__name__} of {dtype}: {error}")
    assert not wrong, "\n".join(wrong)


def test_complex_numbers_have_none() -> None:
    assert not any(dtype == C64 for _, dtype in PAIRS)
    with pytest.raises(ModelError, match="no code for complex numbers"):
        _emitted(_graph(next(op for op in MCC.ops if op.__name__ == "Identity"), C64), "native")


def test_ops_without_operands_take_none() -> None:
    assert accepted(Full) == () and form(Full, F32) is None
