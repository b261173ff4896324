"""The order in which groups of attention are launched."""

from __future__ import annotations

from modelcc.ir.index import Index, Sym
from modelcc.targets.gpu.attention.attention_parts import AttentionParts
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of

CACHE_BYTES = 32 << 20
"""Keys and values that stay in L2 while groups read them."""


def grid_of(
    kernel: GroupKernel,
    parts: AttentionParts,
    names: tuple[str, str],
    blocks: Index,
    causal: bool,
) -> tuple[tuple[tuple[str, Index], ...], Index]:
    """A grid of heads and ``blocks`` of rows, called by ``names``, and a group's head.

    Under a causal mask, the longest blocks come first, of all heads whose keys and values fit into
    L2 together, so that none starts last.
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
