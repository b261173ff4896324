"""Every op of the catalogue on its samples as a separate graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import DIM
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import Array, TensorType
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes


def cases() -> Iterator[tuple[Op, int, bool]]:
    """Each op with its samples by number, with static and with named extents."""
    for kind in MCC.ops:
        for number, sample in enumerate(kind.samples):
            op = kind(**sample.attributes)
            yield from (
                (op, number, named) for named in (False, True)[: 1 + bool(sizes(op, sample))]
            )


def sample_graph(op: Op, sample: Sample) -> tuple[Graph, Mapping[str, Array]]:
    """The op alone, and inputs for it; array operands of the sample are constants."""
    dims = dict.fromkeys(op.binds, DIM)
    build, feeds, names = GraphBuilder("sample", dims), dict[str, Array](), list[str]()
    for n, (given, value) in enumerate(zip(sample.operands, arrays(op, sample), strict=True)):
        if isinstance(given, TensorType) and value is not None:
            names.append(build.input(f"x{n}", given))
            feeds[f"x{n}"] = value
        else:
            names.append("" if given is None else build.constant(np.asarray(given)))
    return build.build(build.add(op, *names)), feeds
