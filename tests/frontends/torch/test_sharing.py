"""Results of ``torch.compile`` share memory where those of eager execution do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch import backend  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
OPTIONS = {"threads": 1, "cache": None}


def _retyped(y: Any) -> Any:
    return y, y.view(torch.int32), torch.complex(y, y + 1)


def _complex(y: Any) -> Any:
    z = torch.complex(y, y + 1)
    return z, torch.view_as_real(z), z.real, z.conj(), z.conj().imag


CASES: dict[str, Callable[[Any], Any]] = {
    "a result and a view": lambda y: (y, y.view(-1)),
    "views that overlap": lambda y: (*y.unbind(0), *y.chunk(2, -1), y.t(), y.diagonal()),
    "stretched and strided": lambda y: (y, y.expand(2, *y.shape), y.as_strided((2, 2), (1, 2), 3)),
    "windows": lambda y: (y.unfold(0, 2, 1), y[1:], y[::2, 1]),
    "of another type": _retyped,
    "parts of complex numbers": _complex,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_views_share_memory(name: str, dynamic: bool) -> None:
    def f(x: Any) -> Any:
        return CASES[name](x * 2)

    fast = torch.compile(f, backend=backend, options=OPTIONS, dynamic=dynamic)
    for n in (4, 6):
        x = torch.randn(n, 4)
        ours, theirs = fast(x), f(x)
        torch.testing.assert_close(ours, theirs)
        assert _meetings(ours) == _meetings(theirs)
        assert [t.stride() for t in ours] == [t.stride() for t in theirs]
        assert [(t.is_conj(), t.is_neg()) for t in ours] == [
            (t.is_conj(), t.is_neg()) for t in theirs
        ]


def _meetings(tensors: Any) -> list[list[bool]]:
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [[one == other for one in places] for other in places]


def test_writes_behind_a_graph_break_reach_what_is_shared() -> None:
    def f(x: Any) -> Any:
        y = x.sin()
        row = y[0]
        torch._dynamo.graph_break()
        row.fill_(5)
        return y

    x = torch.randn(3, 3)
    assert torch.equal(torch.compile(f, backend=backend, options=OPTIONS)(x)[0], f(x)[0])


def test_parts_that_do_not_meet_are_computed_alone() -> None:
    def f(x: Any) -> Any:
        y = x.relu()
        return y[0], y[-1]

    x = torch.randn(64, 8)
    first, last = torch.compile(f, backend=backend, options=OPTIONS)(x)
    assert torch.equal(first, x[0].relu()) and torch.equal(last, x[-1].relu())
    assert first.untyped_storage().nbytes() == 32


def test_views_of_arguments_are_copied_nowhere() -> None:
    x = torch.randn(3, 4)
    fast = torch.compile(lambda x: (x.t(), x + 1), backend=backend, options=OPTIONS)
    assert fast(x)[0].data_ptr() == x.data_ptr()
