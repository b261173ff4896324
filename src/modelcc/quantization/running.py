"""Graphs compiled with additional outputs, and run over calibration data."""

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
"""Maximum bytes of kept tensors for the samples of a run."""

MOST_SAMPLES = 32
"""Maximum samples of a run."""


@dataclass(frozen=True)
class Engine:
    """Compilation of graphs for measurement."""

    options: Options = field(default_factory=Options)
    config: BuildConfig = NOWHERE

    def runner(self, graph: Graph, keep: Iterable[str] = ()) -> Callable[[Feeds], dict[str, Array]]:
        """A function that returns all outputs and the values to ``keep``."""
        kept = tuple(n for n in dict.fromkeys(keep) if n not in graph.inputs)
        compiled = compile_model(graph, replace(self.options, keep=kept), self.config)
        session = compiled.target.load(compiled.artifact, self.options.threads)

        def run(feeds: Feeds) -> dict[str, Array]:
            return {**feeds, **session.run(feeds)}

        return run

    def each(self, what: str, feeds: Sequence[Feeds]) -> Iterator[Feeds]:
        """The feeds, reporting progress as ``what``."""
        for n, one in enumerate(feeds):
            self.config.report(what, n, len(feeds))
            yield one
        self.config.report(what, len(feeds), len(feeds))


def samples_per_run(graph: Graph, keep: Iterable[str], feeds: Feeds) -> int:
    """The number of samples per run, ``feeds`` being one, such that kept tensors fit."""
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
    """Power of a signal, and of its error."""

    signal: float = 0.0
    noise: float = 0.0
    different: int = 0
    count: int = 0

    def add(self, got: Array, expected: Array) -> None:
        """Accumulates the comparison of two arrays of the same shape."""
        self.count += expected.size
        if expected.dtype.kind != "f":
            self.different += int((got != expected).sum())
            return
        wide = expected.astype(np.float64)
        self.signal += float((wide**2).sum())
        self.noise += float(((got - wide) ** 2).sum())

    @property
    def error(self) -> float:
        """Root mean square error relative to the signal; the fraction that differs, for non-float
        types."""
        if not self.signal:
            return self.different / self.count if self.count else 0.0
        return float(np.sqrt(self.noise / self.signal))

    @property
    def decibels(self) -> float:
        """Signal-to-noise ratio in dB; infinite without noise."""
        error = self.error
        return float("inf") if not error else -20 * float(np.log10(error))


def compared(
    got: Mapping[str, Array], expected: Mapping[str, Array], into: Mapping[str, Noise]
) -> None:
    """Accumulates comparisons of kept values ``into`` entries by name."""
    for name, noise in into.items():
        noise.add(got[name], expected[name])
