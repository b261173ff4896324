"""``torch.compile`` by modelcc computes what eager PyTorch does, forward and backward."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
checkpoint: Any = pytest.importorskip("torch.utils.checkpoint").checkpoint

from modelcc.ir.errors import ModelError  # noqa: E402
from modelcc.torch import backend  # noqa: E402
from modelcc.torch.dynamo import MODES  # noqa: E402
from modelcc.torch.partition import Parted  # noqa: E402
from tests.packages import described  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

nn: Any = torch.nn
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
ROOT = Path(__file__).parents[1]


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


class Block(nn.Module):
    """A transformer's block: attention and a small network, each with a norm before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


def mlp() -> Any:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def normalised() -> Any:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))


def convolutional() -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 3),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, (5, 6)),
    "layer_norm": (normalised, (5, 6)),
    "convolutional": (convolutional, (3, 2, 8, 8)),
    "transformer": (Block, (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_has_the_gradients_of_eager(name: str) -> None:
    make, shape = MODELS[name]
    ours, theirs = make(), make()
    theirs.load_state_dict(ours.state_dict())
    fast = compiled(ours)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (ours, theirs)]
    for _ in range(3):
        x = torch.randn(shape)
        for model, optimizer in zip((fast, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            close(one.grad, other.grad, 1e-4)
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        close(one, other)  # running statistics


def test_one_compilation_for_all_batch_sizes() -> None:
    seen: list[tuple[str, Parted]] = []
    model = mlp()
    fast = compiled(model, seen, dynamic=True)
    for n in (2, 3, 17):
        x = torch.randn(n, 6)
        ours, theirs = fast(x), model(x)
        close(ours, theirs)
        ours.sum().backward()
    assert [kind for kind, _ in seen] == ["forward", "backward"]


def test_a_number_that_no_tensor_shows() -> None:
    def f(x: Any, n: int) -> Any:
        return torch.cat([x + 1, x.new_zeros(n) - 1]), n * 2

    fast = compiled(f, dynamic=True)
    for n in (3, 4, 9):
        x = torch.randn(5)
        ours, theirs = fast(x, n), f(x, n)
        close(ours[0], theirs[0])
        assert ours[1] == theirs[1]


def layouts() -> dict[str, Any]:
    x = torch.randn(2, 3, 4, 5)
    return {
        "contiguous": x,
        "transposed": x.transpose(1, 3),
        "channels_last": x.to(memory_format=torch.channels_last),
        "with_gaps": torch.randn(2, 3, 4, 7)[..., 1:6],
        "every_second": torch.randn(2, 3, 8, 5)[:, :, ::2],
        "expanded": torch.randn(2, 3, 1, 5).expand(2, 3, 4, 5),
        "a_single_row": torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last),
        "empty": torch.randn(2, 0, 4, 5).transpose(0, 3),
    }


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", layouts())
def test_any_layout_of_inputs_and_that_of_eager_for_results(name: str, dynamic: bool) -> None:
    x = layouts()[name]

    def f(x: Any) -> Any:
        y = torch.relu(x) * 2
        return y, y.transpose(0, 1) + 1, x.permute(3, 1, 0, 2).contiguous() * 3

    found = compiled(f, dynamic=dynamic)(x)
    for ours, theirs in zip(found, f(x), strict=True):
        close(ours, theirs)
        if name not in ("expanded", "empty"):
            assert ours.stride() == theirs.stride()


def test_views_and_mutation() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        y[1:3] = x[:2] * 2
        return x.view(-1), y[0], y.t(), x

    given = [(torch.arange(12.0).view(4, 3), torch.ones(4, 3)) for _ in range(2)]
    ours, theirs = compiled(f)(*given[0]), f(*given[1])
    for a, b in zip((*ours, *given[0]), (*theirs, *given[1]), strict=True):
        close(a, b)
    assert ours[3] is given[0][0]
    assert ours[0].data_ptr() == given[0][0].data_ptr()


@pytest.mark.parametrize("grad", [False, True])
def test_a_parameter_gets_other_memory(grad: bool) -> None:
    def changed(p: Any, x: Any) -> Any:
        x.mul_(2)
        p.data = torch.sin(p.data) * x
        return p + x

    found: list[Any] = []
    for function in (compiled(changed), changed):
        p, x = nn.Parameter(torch.arange(3.0)), torch.full((3,), 2.0)
        with torch.set_grad_enabled(grad):
            found.append(([function(p, x), function(p, x)], p, x))
    close(*found)


def test_results_that_are_no_tensors_or_arguments() -> None:
    def f(x: Any) -> Any:
        return x, None, x + 1, x.shape[0], 2.5

    x = torch.randn(4)
    found = compiled(f, dynamic=True)(x)
    assert found[0] is x and found[1] is None and found[3:] == (4, 2.5)
    close(found[2], x + 1)


def test_operators_that_are_not_there_run_in_torch() -> None:
    def f(x: Any) -> Any:
        y = torch.relu(x) + 1
        return torch.linalg.ldl_factor_ex(y + y.t())[0].sort().values * 2

    seen: list[tuple[str, Parted]] = []
    x = torch.randn(4, 4)
    close(compiled(f, seen, fullgraph=True)(x), f(x), 1e-4)
    ((kind, parts),) = seen
    assert kind == "inference" and parts.whole is None and parts.parts
    assert any("linalg" in problem.operator for problem in parts.problems)


def test_random_operators_give_torchs_bits() -> None:
    fast = compiled(lambda x: nn.functional.dropout(torch.relu(x), 0.5))
    x = torch.randn(64)
    torch.manual_seed(3)
    ours = fast(x)
    torch.manual_seed(3)
    close(ours, nn.functional.dropout(torch.relu(x), 0.5))


def test_checkpointed_random_operators_draw_the_same_again() -> None:
    """PyTorch runs what saves the state of its generator, and notes no results of it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 3), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.last(checkpoint(self.middle, x, use_reentrant=False))

        def middle(self, x: Any) -> Any:
            return nn.functional.dropout(self.first(x), 0.5).tanh()

    model, x, found = Model(), torch.randn(5, 6), list[Any]()
    for function in (compiled(model, fullgraph=True), model):
        torch.manual_seed(3)
        y = function(x).square().sum()
        found.append(torch.autograd.grad(y, tuple(model.parameters())))
    close(*found)


def test_many_threads() -> None:
    model = mlp()
    fast = compiled(model, dynamic=True)
    inputs = [torch.randn(2 + i % 5, 6) for i in range(60)]
    with torch.no_grad():
        fast(inputs[0])

    def run(x: Any) -> Any:
        with torch.no_grad():
            return fast(x)

    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(inputs, pool.map(run, inputs), strict=True):
            close(y, model(x).detach())


def test_no_grad_and_gradients_in_turns() -> None:
    model = mlp()
    fast, x = compiled(model), torch.randn(5, 6)
    with torch.no_grad():
        assert not fast(x).requires_grad
    assert fast(x).requires_grad
    with torch.inference_mode():
        close(fast(x), model(x))


def test_autocast() -> None:
    model, x = mlp(), torch.randn(5, 6)
    fast = compiled(model)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = fast(x), model(x)
    assert ours.dtype == torch.bfloat16
    close(ours, theirs, 2e-2)
    ours.float().sum().backward()
    assert model[0].weight.grad.dtype == torch.float32


def test_gradients_accumulate() -> None:
    model, x = mlp(), torch.randn(5, 6)
    fast = compiled(model)
    for _ in range(3):
        fast(x).sum().backward()
    three = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    (3 * model(x).sum()).backward()
    for ours, p in zip(three, model.parameters(), strict=True):
        close(ours, p.grad)


def test_hooks_run() -> None:
    model, x = mlp(), torch.randn(5, 6)
    calls: list[str] = []
    model[0].register_forward_hook(lambda *_: calls.append("forward"))
    model[2].weight.register_hook(lambda g: calls.append("gradient") or g * 2)
    fast = compiled(model)
    fast(x).sum().backward()
    doubled = model[2].weight.grad.clone()
    assert calls[0] == "forward" and "gradient" in calls
    model.zero_grad()
    model(x).sum().backward()
    close(doubled, model[2].weight.grad)


def test_frozen_parameters_are_constants() -> None:
    model, x = mlp(), torch.randn(5, 6)
    frozen = {"threads": 1, "cache": None, "freeze": True}
    fast = torch.compile(model, backend=backend, options=frozen)
    with torch.no_grad():
        before = fast(x)
        close(before, model(x))
        model[0].weight.zero_()
        close(fast(x), before)


def elements_in_memory(tensor: Any) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage().nbytes()


def test_released_parameters_take_no_memory_and_are_told_of() -> None:
    model, x = mlp(), torch.randn(5, 6)
    shared = model[2].weight[:1].detach()  # its memory is somebody else's, too
    with torch.no_grad():
        wanted = model(x)
        options = {"threads": 1, "cache": None, "release": True}
        fast = torch.compile(model, backend=backend, options=options)
        close(fast(x), wanted)
        close(fast(x.clone()), wanted)
        assert elements_in_memory(model[0].weight) == 0
        assert model[0].weight.shape == (16, 6) and "16, 6" in repr(model[0].weight)
        assert shared.isfinite().all()
        with pytest.raises(ModelError, match="linear of a parameter that was released"):
            model(x)


def test_what_pytorch_itself_reads_is_not_released() -> None:
    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix, self.scale = nn.Parameter(torch.eye(3)), nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return torch.linalg.ldl_factor_ex(self.matrix)[0].diagonal() + (x * self.scale).exp()

    model, x = Solved(), torch.randn(3)
    with torch.no_grad():
        wanted = model(x)
        options = {"threads": 1, "cache": None, "release": True}
        fast = torch.compile(model, backend=backend, options=options)
        close(fast(x), wanted)
        close(fast(x.clone()), wanted)
        assert model.matrix.sum() == 3 and elements_in_memory(model.scale) == 0


def test_other_devices_are_refused() -> None:
    with pytest.raises(Exception, match=r"is on meta(.|\n)*move model and inputs to the CPU"):
        compiled(torch.relu)(torch.empty(3, device="meta"))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"options": {"speed": 3}}, "no option 'speed'"), ({"mode": "faster"}, "no mode")],
)
def test_unknown_options_and_modes_are_refused(given: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        torch.compile(torch.relu, backend=backend, **given)(torch.randn(3))


@pytest.mark.parametrize("mode", sorted(MODES))
def test_modes_of_pytorch_are_taken(mode: str) -> None:
    x, gelu = torch.randn(4, 8), nn.functional.gelu
    close(torch.compile(gelu, backend=backend, mode=mode)(x), gelu(x))


def test_compiled_code_is_found_again(tmp_path: Path) -> None:
    options = {"threads": 1, "cache": tmp_path}
    model, x = mlp(), torch.randn(5, 6)
    folder, counts = tmp_path / "artifacts", list[set[str]]()
    for _ in range(2):
        torch._dynamo.reset()
        with torch.no_grad():
            close(torch.compile(model, backend=backend, options=options)(x), model(x))
        found = {f"{p.name} {p.stat().st_ino}" for p in folder.rglob("*.mcc")}
        counts.append(found)
    assert counts[0] and counts[0] == counts[1]


def test_torch_finds_the_backend_by_its_name(tmp_path: Path) -> None:
    """As installed: its entry point is what pyproject.toml says."""
    _, points = described(ROOT, tmp_path)
    code = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {points!r})
        import torch
        x = torch.randn(5)
        fast = torch.compile(torch.relu, backend="modelcc", options={{"cache": None}})
        assert torch.equal(fast(x), torch.relu(x))
        assert "modelcc.torch.dynamo" in sys.modules
        unwanted = ("modelcc.driver", "modelcc.pipeline", "llvmlite")
        assert not [name for name in unwanted if name in sys.modules]  # another process compiles
    """)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensors_that_the_model_makes_of_numbers() -> None:
    def extended(x: Any) -> Any:
        return torch.cat([torch.tensor([], dtype=x.dtype), torch.tensor([1.0, 2.0]), x])

    for gradients in (False, True):
        x = torch.randn(3, requires_grad=gradients)
        close(compiled(extended)(x), extended(x))
        torch._dynamo.reset()


def test_results_of_pytorch_s_operators_may_lie_otherwise_than_these_say() -> None:
    @torch.library.custom_op("tests::by_columns", mutates_args=(), schema="(Tensor x) -> Tensor")
    def by_columns(x: Any) -> Any:
        return x.T.contiguous().T

    @by_columns.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    close(compiled(lambda x: by_columns(x + 1) * 2)(x := torch.randn(3, 4)), (x + 1) * 2)


def test_an_input_may_be_called_as_what_is_made_of_another() -> None:
    """The gradients of a product get transposed views of its operands."""
    first, second = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 4, 5)
    second.requires_grad_()
    expected = torch.autograd.grad(torch.bmm(first, second).sum(), (first, second))
    found = torch.autograd.grad(compiled(torch.bmm)(first, second).sum(), (first, second))
    close(found, expected)


def test_what_torch_leaves_as_columns_is_brought_into_rows() -> None:
    """A part after an operator that PyTorch runs, whose results lie otherwise than inferred."""
    a, b = torch.randn(4, 4).tril() + 4 * torch.eye(4), torch.randn(4, 2)
    a.requires_grad_()

    def solved(a: Any, b: Any) -> Any:
        return torch.triangular_solve(b, a, upper=False)[0] * 2

    (expected,) = torch.autograd.grad(solved(a, b).sum(), a)
    (found,) = torch.autograd.grad(compiled(solved)(a, b).sum(), a)
    close(found, expected)


def test_lists_index() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    close(compiled(lambda x: x[[2, 0]] * 2)(x), x[[2, 0]] * 2)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
def test_bags_have_gradients(mode: str, padding: int | None) -> None:
    table = torch.randn(6, 3, requires_grad=True)
    indices, offsets = torch.tensor([0, 1, 1, 5, 2]), torch.tensor([0, 3, 3])

    def bag(table: Any) -> Any:
        bag = nn.functional.embedding_bag
        return bag(indices, table, offsets, mode=mode, padding_idx=padding)

    given = torch.randn(3, 3)
    (expected,) = torch.autograd.grad(bag(table), table, given)
    (found,) = torch.autograd.grad(compiled(bag)(table), table, given)
    close(found, expected)
