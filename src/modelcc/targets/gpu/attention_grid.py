"""In which order groups of attention begin."""

from __future__ import annotations

from modelcc.ir.index import Index, Sym
from modelcc.targets.gpu.attention_parts import AttentionParts
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of

CACHE_BYTES = 32 << 20
"""Of keys and values that stay in a machine's cache while groups read them."""


def grid_of(
    kernel: GroupKernel,
    parts: AttentionParts,
    names: tuple[str, str],
    blocks: Index,
    causal: bool,
) -> tuple[tuple[tuple[str, Index], ...], Index]:
    """A grid of heads and ``blocks`` of rows, called by ``names``, and a group's head.

    Where rows see more keys the later they are, blocks that take longest come first, of all heads
    whose keys and values are in the cache at the same time: none begins last.
    """
    head, block = names
    heads, keys = extent_of(parts.first.batch), parts.pair.key.extent
    if not causal:
        return ((head, heads), (block, blocks)), Sym(head)
    if not isinstance(heads, int) or not isinstance(keys, int):
        return ((block, blocks), (head, heads)), Sym(head)
    bytes_each = parts.first.right.value.dtype.bytes
    most = max(CACHE_BYTES // max(keys * (parts.depth + parts.width) * bytes_each, 1), 1)
    fitting = (n for n in range(1, min(heads, most) + 1) if heads % n == 0)
    together = max(fitting, default=1)
    if together == heads:
        return ((block, blocks), (head, heads)), Sym(head)
    part = kernel.names.fresh("gp")
    grid = (part, heads // together), (block, blocks), (head, together)
    return grid, Sym(part) * together + Sym(head)
