"""What PyTorch runs of a compiled graph, it runs in the order of the program."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch import backend  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
OPTIONS = {"threads": 1, "cache": None}


def test_random_numbers_are_drawn_in_order() -> None:
    def f(x: Any) -> Any:
        dropout = torch.nn.functional.dropout
        first = torch.bernoulli(x.sigmoid())  # behind a part that is compiled
        free = torch.rand(3)
        return first, free, dropout(x.exp(), 0.5), torch.randn(2), dropout(x, 0.5), first * 2

    found, x = list[Any](), torch.randn(8)
    for function in (torch.compile(f, backend=backend, options=OPTIONS), f):
        torch.manual_seed(3)
        found.append((function(x), torch.get_rng_state()))
    torch.testing.assert_close(*found)


def test_a_custom_operator_writes_its_log_in_order() -> None:
    log: list[float] = []

    @torch.library.custom_op(
        "order_of_effects::note", mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    def note(x: Any) -> Any:
        log.append(x.sum().item())
        return x.clone()

    note.register_fake(torch.empty_like)

    def f(x: Any) -> Any:
        return note(x.relu() + 1), note(x), note(x.relu() + 2)

    x = torch.ones(2)
    torch.compile(f, backend=backend, options=OPTIONS)(x)
    assert log == [4.0, 2.0, 6.0]


def test_values_that_the_program_asserts_are_checked() -> None:
    def f(x: Any) -> Any:
        torch._assert_async(x.sum() > 0, "a negative sum")
        return x + 1

    fast = torch.compile(f, backend=backend, options=OPTIONS)
    assert torch.equal(fast(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="a negative sum"):
        fast(-torch.ones(3))
