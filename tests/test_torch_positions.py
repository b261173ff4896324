"""Caches of keys and values by torch.compile whose position is a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch import explain  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


def subscript(cache: Any, position: Any, new: Any) -> None:
    cache[:, :, position] = new


def index_copy(cache: Any, position: Any, new: Any) -> None:
    cache.index_copy_(2, position, new)


def index_put(cache: Any, position: Any, new: Any) -> None:
    rows, heads = torch.arange(cache.shape[0]), torch.arange(cache.shape[1])
    cache.index_put_((rows[:, None, None], heads[:, None], position), new)


def scatter(cache: Any, position: Any, new: Any) -> None:
    cache.scatter_(2, position.view(1, 1, -1, 1).expand(new.shape), new)


def chosen(cache: Any, position: Any, new: Any) -> None:
    here = torch.arange(cache.shape[2]) == position
    cache.copy_(torch.where(here[:, None], new, cache))


class Attention(torch.nn.Module):
    """A token's attention over a cache, which ``write`` puts its key and value into."""

    def __init__(self, write: Callable[[Any, Any, Any], None]) -> None:
        super().__init__()
        self.write = write
        self.both = torch.nn.Linear(8, 24)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(2, 2, 12, 4))

    def forward(self, x: Any, position: Any) -> Any:
        query, key, value = self.both(x).view(2, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.write(self.keys, position, key)
        self.write(self.values, position, value)
        seen = (torch.arange(12) <= position)[None]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, self.keys, self.values, attn_mask=seen)


@pytest.mark.parametrize(
    "write", (subscript, index_copy, index_put, scatter, chosen), ids=lambda f: f.__name__
)
def test_caches_are_written_where_they_are(write: Callable[[Any, Any, Any], None]) -> None:
    seen: list[Any] = []
    ours, theirs = Attention(write), Attention(write)
    theirs.load_state_dict(ours.state_dict())
    fast = compiled(ours, seen, fullgraph=True)
    with torch.no_grad():
        for n in range(4):
            x, position = torch.randn(2, 1, 8), torch.tensor([n])
            torch.testing.assert_close(fast(x, position), theirs(x, position))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    ((_, parts),) = seen
    assert parts.whole is not None and len(parts.whole.interface.in_place) == 2


def written(cache: Any, position: Any, new: Any) -> Any:
    subscript(cache, position, new)
    return cache.sum()


INPUTS = torch.zeros(1, 2, 8, 4), torch.tensor(3), torch.ones(1, 2, 4)


def test_a_position_without_axes_is_explained_with_the_remedy() -> None:
    (reason,) = explain(written, *INPUTS).breaks
    assert f"{__file__}:" in reason and "position[None]" in reason


def test_a_position_without_axes_is_refused_where_no_graph_may_break() -> None:
    with pytest.raises(Exception, match=r"give the position an axis, as position\[None\]"):
        compiled(written, fullgraph=True)(*INPUTS)


def test_a_constant_position_without_axes_is_compiled() -> None:
    seen: list[Any] = []
    x = torch.randn(5, 3)
    found = compiled(lambda x: x[torch.tensor(2)] * 2, seen, fullgraph=True)(x)
    torch.testing.assert_close(found, x[2] * 2)
    assert seen[0][1].whole is not None
