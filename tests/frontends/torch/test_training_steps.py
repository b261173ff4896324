"""Steps of optimizers and the scaling of gradients, compiled, beside eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch.partition import Parted  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), amsgrad=True, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.3, maximize=True, foreach=True),
    "momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.8, dampening=0.3, maximize=True, foreach=True
    ),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.3, foreach=True),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1, foreach=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.1, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, foreach=True),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1, foreach=True),
}


def models() -> list[Any]:
    found = [torch.nn.Linear(6, 5) for _ in range(2)]
    found[1].load_state_dict(found[0].state_dict())
    return found


def whole(seen: list[tuple[str, Parted]]) -> bool:
    """Whether nothing was left for PyTorch."""
    return bool(seen) and all(parts.whole is not None for _, parts in seen)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str) -> None:
    seen: list[tuple[str, Parted]] = []
    pair = models()
    first, second = (OPTIMIZERS[name](m.parameters()) for m in pair)
    fast = compiled(first.step, seen)
    for n in range(4):
        for model in pair:
            for p in model.parameters():
                p.grad = (p.detach() * (n + 1)).sin()
        fast()
        second.step()
        torch.testing.assert_close(*(m.state_dict() for m in pair))
        states = (o.state_dict()["state"] for o in (first, second))
        torch.testing.assert_close(*states)
    assert whole(seen)


@pytest.mark.parametrize("value", [2.0, float("inf"), float("nan")])
def test_gradients_are_unscaled(value: float) -> None:
    def unscale(grads: Any, found: Any, inverse: Any) -> Any:
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        return found * 2

    results: list[Any] = []
    for fast in (compiled(unscale, seen := []), unscale):
        grads = [torch.tensor([3.0, value]), torch.rand(2, 3, generator=torch.manual_seed(0))]
        found = torch.tensor(0.0)
        results.append((fast(grads, found, torch.tensor(0.25)), grads[1], grads[0][:1], found))
    torch.testing.assert_close(*results)
    assert whole(seen)


def test_the_scale_grows_and_falls() -> None:
    def update(scale: Any, tracker: Any, found: Any) -> Any:
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
        return scale + 0

    pair = [(torch.tensor(2.0**126), torch.tensor(0, dtype=torch.int32)) for _ in range(2)]
    fast = compiled(update, seen := [])
    for bad in (0, 0, 1, 0, 1, 0, 0, 0, 0):
        found = torch.tensor(float(bad))
        fast(*pair[0], found)
        update(*pair[1], found)
        torch.testing.assert_close(*pair)
    assert whole(seen)


def test_a_whole_step_with_clipped_gradients() -> None:
    """Gradients of a model, their norm, and the optimizer, behind each other."""
    pair, results = models(), list[Any]()
    for ours, model in zip((True, False), pair, strict=True):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach(), norm

        run = compiled(step) if ours else step
        x = torch.linspace(-1, 1, 24).reshape(4, 6)
        results.append([run(x) for _ in range(3)])
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(m.state_dict() for m in pair))


def test_training_in_f16_with_a_scaler() -> None:
    """Whose scale is too large at some steps, at the same ones as of eager execution."""
    found: list[list[tuple[float, float]]] = []
    for ours in (True, False):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        optimizer = torch.optim.AdamW(layer.parameters(), 1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**27, growth_interval=2)
        run, x = compiled(layer) if ours else layer, torch.randn(2, 8, 16)
        found.append([])
        for _ in range(6):
            with torch.autocast("cpu", torch.float16):
                loss = run(x).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            found[-1].append((loss.item(), scaler.get_scale()))
    for one, other in zip(*found, strict=True):
        assert one[1] == other[1] and one[0] == pytest.approx(other[0], rel=1e-3)
    scales = [scale for _, scale in found[0]]
    assert scales[0] > scales[-1], "too large at first"
