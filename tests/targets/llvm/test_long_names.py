"""Names that LLVM would cut stay apart."""

from __future__ import annotations

import numpy as np
from small_models import model, two_outputs

import modelcc


def test_names_longer_than_llvm_takes() -> None:
    """Inputs, outputs and dimensions that differ after 2,000 characters; non-ASCII ones, too."""
    for letter in ("x", "ü"):
        start = letter * 2000
        a, b, total, product = (f"{start}{end}" for end in "abtp")
        shape = (f"{start}n",)
        plain = two_outputs().graph.node
        nodes = [type(node).FromString(node.SerializeToString()) for node in plain]
        for node, result in zip(nodes, (total, product), strict=True):
            node.input[:], node.output[:] = [a, b], [result]
        proto = model(nodes, {a: shape, b: shape}, {total: shape, product: shape}, {})
        net = modelcc.compile(proto, threads=1, cache=None)
        feeds = {a: np.arange(5, dtype=np.float32), b: np.full(5, 3, np.float32)}
        found = net.run(feeds)
        np.testing.assert_array_equal(found[total], feeds[a] + feeds[b])
        np.testing.assert_array_equal(found[product], feeds[a] * feeds[b])
