"""Observed ranges of tensors over calibration data, and their quantisation parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array, DType
from modelcc.quantization.histogram import Histogram
from modelcc.quantization.plan import QuantizationPlan
from modelcc.quantization.ranges import Rounding, chosen_rounding
from modelcc.quantization.running import Engine
from modelcc.quantization.samples import Feeds
from modelcc.quantization.settings import QuantizationSettings


def observed(
    graph: Graph,
    names: Sequence[str],
    feeds: Sequence[Feeds],
    run: Callable[[Feeds], Mapping[str, Array]],
    engine: Engine,
) -> dict[str, Histogram]:
    """Histograms of ``names`` over ``feeds``; :class:`ModelError` if values are not finite."""
    seen = {name: Histogram() for name in names}
    producers = graph.producers()
    for one in engine.each("observing the samples", feeds):
        values = run(one)
        for name, histogram in seen.items():
            values_of = values[name]
            if not np.isfinite(values_of).all():
                node = producers.get(name)
                place = (name,) if node is None else (*node.source, name)
                message = "it is not finite for some of the calibration data"
                raise ModelError(message, place, "leave these samples out, or skip the node")
            histogram.add(values_of)
    return seen


def roundings(
    plan: QuantizationPlan,
    seen: Mapping[str, Histogram],
    dtypes: Mapping[str, DType],
    settings: QuantizationSettings,
) -> dict[str, Rounding]:
    """The rounding of each tensor of a plan, to one of ``dtypes`` by its group."""
    found: dict[str, Rounding] = {}
    for root, names in plan.groups().items():
        together = reduce(Histogram.merged, (seen[name] for name in names))
        found |= dict.fromkeys(names, chosen_rounding(together, dtypes[root], settings))
    return found
