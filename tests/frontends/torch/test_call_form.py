"""Exported programs are called with the pytrees they were exported with, and give theirs."""

from __future__ import annotations

import logging
import pickle
import re
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402
from modelcc.ir.graph_parser import parse_graph  # noqa: E402
from modelcc.ir.graph_text import constants_by_digest, print_graph  # noqa: E402
from modelcc.ops.catalog import MCC  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass
class Batch:
    ids: Any
    mask: Any = None


torch.export.register_dataclass(Batch, serialized_type_name="test_call_form.Batch")


class Pair(NamedTuple):
    low: Any
    high: Any


torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="test_call_form.Pair")


class Nested(torch.nn.Module):
    def forward(
        self, x: Any, batch: Any, pairs: Any, more: Any = None, *, scale: Any, power: int = 1
    ) -> Any:
        total = x + batch["ids"] - batch["mask"] * scale
        both = Batch(total + pairs[0].ids, None)
        return {"sum": total, "list": [pairs[1][0] ** power, (x * 2, 7)], "both": both}


class Optional(torch.nn.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        return (x if mask is None else x * mask,)


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, batch: dict[str, Any]) -> Any:
        self.count += batch["x"]
        return Pair(self.count * 1, batch["y"] + 1)


def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
    x, ids, mask, a, b, scale = (torch.randn(3) for _ in range(6))
    args = (x, {"ids": ids, "mask": mask}, [Batch(a), (b,)], None)
    return args, {"scale": scale, "power": 3}


@pytest.fixture(scope="module")
def nested() -> modelcc.Model:
    return modelcc.compile(torch.export.export(Nested(), *arguments()), cache=None)


def expect_equal(ours: Any, theirs: Any) -> None:
    found, form = torch.utils._pytree.tree_flatten(ours)
    wanted, other = torch.utils._pytree.tree_flatten(theirs)
    assert form == other
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)  # sums cancel


def test_containers_go_in_and_come_out(nested: modelcc.Model) -> None:
    args, kwargs = arguments()
    wanted = Nested()(*args, **kwargs)
    expect_equal(nested(*args, **kwargs), wanted)
    x, batch, pairs, _ = args
    turned = OrderedDict(reversed(batch.items()))
    expect_equal(nested(x, turned, pairs, power=3, scale=kwargs["scale"]), wanted)
    by_name: dict[str, Any] = {"power": 3, "pairs": pairs, **kwargs, "batch": batch, "x": x}
    expect_equal(nested(**by_name), wanted)
    expect_equal(nested(by_name), wanted)


def test_tensors_are_taken_by_their_names_too(nested: modelcc.Model) -> None:
    args, kwargs = arguments()
    x, batch, pairs, _ = args
    flat = (x, batch["ids"], batch["mask"], pairs[0].ids, pairs[1][0], kwargs["scale"])
    wanted = Nested()(*args, **kwargs)
    expect_equal(nested(*flat), wanted)
    names = [spec.name for spec in nested.inputs]
    expect_equal(nested(**dict(zip(names, flat, strict=True))), wanted)
    found = nested.run(dict(zip(names, flat, strict=True)))
    np.testing.assert_allclose(next(iter(found.values())), wanted["sum"], rtol=1e-6, atol=1e-6)
    found = nested.run({"x": x, "batch": batch, "pairs": pairs, **kwargs})
    assert len(found) == len(nested.outputs)


WRONG = {
    "a missing key": ({"batch": {"ids": 0}}, "batch: expected a dict of 'ids', 'mask', got"),
    "no tensor": ({"batch": {"ids": None, "mask": 0}}, "batch['ids']: expected a tensor, got None"),
    "a type": ({"batch": {"ids": 0, "mask": np.zeros(3)}}, "batch['mask']: expected float32"),
    "an extent": (
        {"batch": {"ids": 0, "mask": np.zeros(2, np.float32)}},
        "batch['mask'] axis 0: expected 3, got 2",
    ),
    "a length": ({"pairs": [1]}, "pairs: expected a list of 2, got a list of 1"),
    "a field": ({"pairs": [3, (0,)]}, "pairs[0]: expected a Batch with ids, mask, got int"),
    "a number": ({"power": 2}, "power: expected 3, got 2"),
    "a tensor for None": ({"more": 0}, "more: expected None, got ndarray"),
    "a name": ({"sum": 0}, "got 'sum'; check the name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told_by_its_place(nested: modelcc.Model, name: str) -> None:
    x = np.zeros(3, np.float32)
    batch, pairs = {"ids": x, "mask": x}, [{"ids": x}, (x,)]
    good: dict[str, Any] = {"x": x, "batch": batch, "pairs": pairs, "scale": x, "power": 3}
    given, said = WRONG[name]
    zeros = torch.utils._pytree.tree_map(lambda v: x if type(v) is int and v == 0 else v, given)
    with pytest.raises(modelcc.InputError, match=re.escape(said)):
        nested(**{**good, **zeros})


def test_no_value_is_given_or_left_out() -> None:
    x = torch.randn(3)
    net = modelcc.compile(Optional(), (x, None), cache=None)
    for found in (net(x, None), net(x), net(mask=None, x=x)):
        expect_equal(found, (x,))
    with pytest.raises(modelcc.InputError, match="mask: expected None, got Tensor"):
        net(x, x)


def test_models_with_states_have_forms() -> None:
    batch = {"x": torch.ones(3), "y": torch.zeros(3)}
    program = torch.export.export(Counting(), (batch,))
    net = modelcc.compile(program, cache=None)
    other = Counting()
    for _ in range(3):
        expect_equal(net(batch), other(batch))
    np.testing.assert_array_equal(net.states["count"], [3, 3, 3])


def test_files_keep_forms_and_need_no_pytorch(
    nested: modelcc.Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "torch._export.serde.serialize")  # fails to warn
    args, kwargs = arguments()
    torch.export.save(torch.export.export(Nested(), *arguments()), tmp_path / "m.pt2")
    wanted = Nested()(*args, **kwargs)
    expect_equal(modelcc.compile(tmp_path / "m.pt2", cache=None)(*args, **kwargs), wanted)
    expect_equal(pickle.loads(pickle.dumps(nested))(*args, **kwargs), wanted)
    nested.save(tmp_path / "m.mcc")
    code = (
        "import modelcc, numpy, sys\n"
        f"net = modelcc.load({str(tmp_path / 'm.mcc')!r})\n"
        "x = numpy.ones(3, 'float32')\n"
        "got = net(x, {'ids': x, 'mask': x}, [{'ids': x}, (x,)], scale=x, power=3)\n"
        "assert got['both'].ids[0] == 2 and got['both'].mask is None and got['list'][1][1] == 7\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_text_of_a_graph_has_its_form() -> None:
    graph = modelcc.import_model(torch.export.export(Nested(), *arguments()))
    assert graph.interface is not None and graph.interface.call is not None
    again = parse_graph(print_graph(graph), constants_by_digest(graph), [MCC])
    assert again.interface == graph.interface
