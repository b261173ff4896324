"""Buffers that an exported program changes are states of the compiled model."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402
from modelcc.cli import main  # noqa: E402
from modelcc.frontends.torch import import_exported  # noqa: E402
from modelcc.ir.graph_parser import parse_graph  # noqa: E402
from modelcc.ir.graph_text import constants_by_digest, print_graph  # noqa: E402
from modelcc.ops.registry import dialects  # noqa: E402

nn: Any = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Counted(nn.Module):
    """Counts calls from 3 on, sums what it is given, and has a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("sum", torch.zeros(4))
        self.register_buffer("last", torch.ones(4), persistent=False)
        self.register_buffer("fixed", torch.randn(4))

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.sum += x
        result = self.last + self.fixed
        self.last.copy_(self.sum * 2)
        return result * self.count, self.sum


class Decoder(nn.Module):
    """One layer of attention over keys and values of this step and those before."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(1, 2, 16, 4))
        self.register_buffer("values", torch.zeros(1, 2, 16, 4))

    def forward(self, x: Any, position: Any) -> Any:
        q, k, v = self.qkv(x).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        seen = torch.arange(16) <= position
        return nn.functional.scaled_dot_product_attention(q, self.keys, self.values, seen[None])


def program_of(model: Any, *inputs: Any) -> Any:
    return torch.export.export(copy.deepcopy(model), inputs)


def follows(net: modelcc.Model, model: Any, *calls: tuple[Any, ...]) -> None:
    """Results and states agree with ``model``'s in each call."""
    for inputs in calls:
        with torch.no_grad():
            ours, theirs = net(*inputs), model(*inputs)
        pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
        for a, b in pairs:
            np.testing.assert_allclose(a, b.numpy(), 1e-5, 1e-5)
        buffers = dict(model.named_buffers())
        for name, array in net.states.items():
            np.testing.assert_allclose(array, buffers[name].numpy(), 1e-5, 1e-5)


def test_counters_and_sums() -> None:
    model = Counted()
    net = modelcc.compile(program_of(model, torch.ones(4)), cache=None)
    assert list(net.states) == ["count", "sum", "last"]
    assert [spec.name for spec in net.inputs] == ["x"] and len(net.outputs) == 2
    assert "state   count: i64[]" in repr(net)
    follows(net, model, *((torch.randn(4),) for _ in range(3)))


def test_running_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    net = modelcc.compile(program_of(model, torch.randn(2, 3, 8, 8)), cache=None)
    assert [*net.states] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    follows(net, model, *((torch.randn(2, 3, 8, 8),) for _ in range(3)))


def test_a_cache_of_keys_and_values() -> None:
    model = Decoder().eval()
    net = modelcc.compile(program_of(model, torch.randn(1, 1, 8), torch.tensor([0])), cache=None)
    follows(net, model, *((torch.randn(1, 1, 8), torch.tensor([n])) for n in range(16)))
    before = net.states
    with pytest.raises(modelcc.RunError):
        net(torch.randn(1, 1, 8), torch.tensor([16]))
    for name, array in net.states.items():
        np.testing.assert_array_equal(array, before[name])


def test_states_are_reset_and_given() -> None:
    net = modelcc.compile(program_of(Counted(), torch.ones(4)), cache=None)
    first = net.states
    net(np.ones(4, np.float32))
    later = net.states
    assert (first["count"], later["count"]) == (3, 4)
    with pytest.raises(ValueError, match="read-only"):
        later["sum"][0] = 1
    net.reset()
    assert net.states["count"] == 3 and not net.states["sum"].any()
    net.reset({"count": np.array(9)})
    net(np.ones(4, np.float32))
    assert net.states["count"] == 10
    with pytest.raises(modelcc.InputError, match="'cuont'"):
        net.reset({"cuont": np.array(9)})
    with pytest.raises(modelcc.InputError, match="shape"):
        net.reset({"sum": np.zeros(3, np.float32)})


def test_copies_and_files_have_states_of_their_own(tmp_path: Path) -> None:
    net = modelcc.compile(program_of(Counted(), torch.ones(4)), cache=tmp_path / "cache")
    net(np.ones(4, np.float32))
    net.save(tmp_path / "net.mcc")
    again = modelcc.compile(program_of(Counted(), torch.ones(4)), cache=tmp_path / "cache")
    others = [copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    net(np.ones(4, np.float32))
    assert [int(o.states["count"]) for o in others] == [4, 4, 4]
    assert int(net.states["count"]) == 5 and int(again.states["count"]) == 3
    loaded = modelcc.load(tmp_path / "net.mcc")
    assert int(loaded.states["count"]) == 3 and loaded.states["last"].all()
    assert loaded.digest == net.digest
    others[2].reset()
    assert int(others[2].states["count"]) == 3


def test_the_graph_s_text_tells_states() -> None:
    graph = import_exported(program_of(Counted(), torch.ones(4)))
    text = print_graph(graph)
    read = parse_graph(text, constants_by_digest(graph), dialects())
    assert (read, read.interface, dict(read.initial)) == (graph, graph.interface, graph.initial)
    assert print_graph(read) == text
    assert read.interface is not None and not read.interface.states["sum"].given


def test_commands_name_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.export.save(program_of(Counted(), torch.ones(4)), tmp_path / "net.pt2")
    net = modelcc.compile(tmp_path / "net.pt2", cache=None)
    net.save(tmp_path / "net.mcc")
    assert main(["inspect", str(tmp_path / "net.mcc"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["states"]
    assert told == {"count": "i64[]", "sum": "f32[4]", "last": "f32[4]"}
    assert main(["run", str(tmp_path / "net.mcc"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["states"]["count"]["first"] == [4]
    assert main(["run", str(tmp_path / "net.mcc")]) == 0
    assert "state" in capsys.readouterr().out


def test_c_has_states(tmp_path: Path) -> None:
    torch.export.save(program_of(Counted(), torch.ones(4)), tmp_path / "net.pt2")
    assert not main(["compile", str(tmp_path / "net.pt2"), "--emit", "c", "-o", f"{tmp_path}/out/"])
    header = (tmp_path / "out" / "net.h").read_text()
    assert "int64_t *count; /* count: i64[] */" in header and "net_states_reset" in header


def test_inputs_that_are_written_to_are_refused() -> None:
    class Writes(nn.Module):
        def forward(self, x: Any) -> Any:
            x.add_(1)
            return x * 2

    with pytest.raises(modelcc.ModelError, match="it changes x, which the caller gives"):
        import_exported(program_of(Writes(), torch.ones(3)))


def narrowed(cache: Any, position: int, row: Any) -> Any:
    cache.narrow(1, position, 1).copy_(row)
    return cache.sum()


def assigned(cache: Any, position: int, row: Any) -> Any:
    cache[:, position : position + 1] = row
    return cache[:, : position + 1].sum()


@pytest.mark.parametrize("write", [narrowed, assigned], ids=lambda f: f.__name__)
def test_a_cache_is_written_at_a_number_from_memory(write: Any) -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 9, 3))

        def forward(self, position: Any, row: Any) -> Any:
            number = position.item()
            torch._check(number >= 0)
            torch._check(number < 9)
            return write(self.cache, number, row)

    eager, net = Cached(), modelcc.compile(Cached(), (torch.tensor(3), torch.ones(2, 1, 3)))
    for n in (0, 5, 8):
        given = torch.tensor(n), torch.randn(2, 1, 3)
        np.testing.assert_allclose(net(*given), eager(*given).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(net.states["cache"], eager.cache.numpy())
    with pytest.raises(modelcc.RunError):
        net(torch.tensor(9), torch.ones(2, 1, 3))
