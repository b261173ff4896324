"""One operator as a model, with inputs of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
from numpy.typing import NDArray

Array = NDArray[Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """A graph, its inputs at extent n, the smallest n, and its counterpart in NumPy or SciPy.

    Inputs that are ``constants``, the same at any n, are stored in the model.
    """

    graph: str
    feeds: Callable[[np.random.Generator, int], Feeds]
    least: int = 256
    opset: int = 18
    library: Callable[[Feeds], object] | None = None
    constants: tuple[str, ...] = ()

    def model(self) -> onnx.ModelProto:
        """The graph with its constant inputs stored as constants."""
        head = f'<ir_version: 8, opset_import: ["" : {self.opset}, "ai.onnx.ml" : 3, '
        head += '"com.microsoft" : 1]>'
        model = onnx.parser.parse_model(f"{head} {self.graph}")
        values = self.feeds(np.random.default_rng(0), self.least)
        kept = [given for given in model.graph.input if given.name not in self.constants]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        for name in self.constants:
            model.graph.initializer.append(onnx.numpy_helper.from_array(values[name], name))
        return model

    def inputs(self, n: int) -> Feeds:
        """Values of the inputs that are not constants."""
        feeds = self.feeds(np.random.default_rng(0), n)
        return {name: value for name, value in feeds.items() if name not in self.constants}


def f32(random: np.random.Generator, *shape: int) -> Array:
    """Uniform numbers in [0, 1)."""
    return random.random(shape, dtype=np.float32)
