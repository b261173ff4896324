"""Graphs compiled with more outputs, and run over examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.dimensions import bind_dimensions
from modelcc.ir.graph import Graph
from modelcc.ir.index import evaluate
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.quantization.samples import Feeds
from modelcc.targets.base import BuildConfig

ROOM = 1 << 28
"""Bytes of kept tensors that the samples of a run may have."""

MOST_SAMPLES = 32
"""Of a run."""


@dataclass(frozen=True)
class Engine:
    """How graphs are compiled to be measured."""

    options: Options = field(default_factory=Options)
    config: BuildConfig = NOWHERE

    def runner(self, graph: Graph, keep: Iterable[str] = ()) -> Callable[[Feeds], dict[str, Array]]:
        """A function to all outputs and the values to ``keep``."""
        kept = tuple(n for n in dict.fromkeys(keep) if n not in graph.inputs)
        compiled = compile_model(graph, replace(self.options, keep=kept), self.config)
        session = compiled.target.load(compiled.artifact, self.options.threads)

        def run(feeds: Feeds) -> dict[str, Array]:
            return {**feeds, **session.run(feeds)}

        return run

    def each(self, what: str, feeds: Sequence[Feeds]) -> Iterator[Feeds]:
        """The feeds, telling how many are done of ``what``."""
        for n, one in enumerate(feeds):
            self.config.report(what, n, len(feeds))
            yield one
        self.config.report(what, len(feeds), len(feeds))


def samples_per_run(graph: Graph, keep: Iterable[str], feeds: Feeds) -> int:
    """How many samples to run at once, ``feeds`` being one, so that what is kept has room."""
    shapes = ((n, graph.types[n], feeds[n].shape) for n in graph.inputs)
    sizes = bind_dimensions(shapes, graph.dims)
    room = 0
    for name in keep:
        type = graph.types[name]
        if all(s in sizes for e in type.shape if not isinstance(e, int) for s in e.symbols):
            room += int(np.prod([evaluate(e, sizes) for e in type.shape])) * type.dtype.bytes
    return max(1, min(MOST_SAMPLES, ROOM // max(room, 1)))


@dataclass
class Noise:
    """Power of values, and of how far they are from what they should be."""

    signal: float = 0.0
    noise: float = 0.0
    different: int = 0
    count: int = 0

    def add(self, got: Array, expected: Array) -> None:
        """Compare two arrays of one shape."""
        self.count += expected.size
        if expected.dtype.kind != "f":
            self.different += int((got != expected).sum())
            return
        wide = expected.astype(np.float64)
        self.signal += float((wide**2).sum())
        self.noise += float(((got - wide) ** 2).sum())

    @property
    def error(self) -> float:
        """Root mean square of the error over that of the values; what differs, of other types."""
        if not self.signal:
            return self.different / self.count if self.count else 0.0
        return float(np.sqrt(self.noise / self.signal))

    @property
    def decibels(self) -> float:
        """Signal to noise, in dB; infinite where there is no noise."""
        error = self.error
        return float("inf") if not error else -20 * float(np.log10(error))


def compared(
    got: Mapping[str, Array], expected: Mapping[str, Array], into: Mapping[str, Noise]
) -> None:
    """Add what is kept to ``into``, each by its name."""
    for name, noise in into.items():
        noise.add(got[name], expected[name])
