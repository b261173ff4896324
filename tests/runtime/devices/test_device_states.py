"""States of models on devices stay there: brought once, and back when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc.ir.graph_interpreter import interpret
from modelcc.runtime.errors import LoadError, RunError
from tests.test_states import FEEDS, GRAPHS, decoder

DEVICES = {"opencl": "OpenclDevice", "webgpu": "WebgpuDevice"}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    module = pytest.importorskip(f"modelcc.runtime.{kind}_device")
    try:
        module.open_device(0)
    except LoadError as error:
        pytest.skip(str(error))
    return kind


@pytest.fixture
def moved(device: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The bytes of each transfer."""
    module = pytest.importorskip(f"modelcc.runtime.{device}_device")
    found: dict[str, list[int]] = {"upload": [], "download": []}

    def counted(name: str) -> Callable[..., None]:
        plain = getattr(getattr(module, DEVICES[device]), name)

        def move(own: Any, memory: Any, offset: int, address: int, size: int) -> None:
            found[name].append(size)
            plain(own, memory, offset, address, size)

        return move

    for name in found:
        monkeypatch.setattr(getattr(module, DEVICES[device]), name, counted(name))
    return found


def test_a_cache_is_brought_once(device: str, moved: dict[str, list[int]]) -> None:
    """Twenty steps move a row, a place, what indices fail, and what comes of it."""
    size = 4 * 64 * 16
    net = modelcc.compile(decoder(), device, cache=None)
    share = net.report().device
    assert share is not None and (share.uploaded, share.downloaded) == (64 + 8, 4 * 64)
    wanted = np.zeros((1, 64, 16), np.float32)
    for place in range(20):
        row = np.random.default_rng(place).standard_normal((1, 1, 16), np.float32)
        wanted[:, place] = row[:, 0]
        found = net(row, np.array([place]))
        np.testing.assert_allclose(found, wanted.sum(2, keepdims=True), rtol=1e-5, atol=1e-5)
    assert [n for n in moved["upload"] if n == size] == [size]
    assert size not in moved["download"]
    with pytest.raises(RunError, match="start 70 is outside"):
        net(np.ones((1, 1, 16), np.float32), np.array([70]))
    for _ in range(2):
        np.testing.assert_array_equal(net.states["cache"], wanted)
    assert moved["download"].count(size) == 1, "what is up to date is not asked for again"
    net.reset()
    net(np.ones((1, 1, 16), np.float32), np.array([5]))
    assert net.states["cache"].sum() == 16 and moved["upload"].count(size) == 2


@pytest.mark.parametrize("name", ["momentum", "exchange", "gated"])
def test_calls_follow_the_reference(device: str, name: str) -> None:
    """States that are updated where they are, that change places, and that are in loops."""
    if (device == "webgpu") != (name == "momentum"):
        pytest.skip("each once")
    graph = GRAPHS[name]()
    net = modelcc.compile(graph, device, cache=None)
    assert graph.interface is not None
    kept, feeds = graph.interface.states, FEEDS[name]
    now = {state.input: feeds[state.input] for state in kept.values()}
    net.reset({n: feeds[state.input] for n, state in kept.items()})
    given = {spec.name: feeds[spec.name] for spec in net.inputs}
    for call in range(3):
        wanted = interpret(graph, {**given, **now})
        for n, array in net.run(given).items():
            np.testing.assert_allclose(array, wanted[n], 1e-5, 1e-5, err_msg=f"{n} of {call}")
        now = {state.input: wanted[state.output] for state in kept.values()}
    for n, state in kept.items():
        np.testing.assert_allclose(net.states[n], now[state.input], 1e-5, 1e-5, err_msg=n)


def test_states_are_lost_with_a_call_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device that stops has left of them nobody is given."""
    opencl = pytest.importorskip("modelcc.runtime.devices.opencl_device")
    net = modelcc.compile(decoder(), "opencl", cache=None)
    row, place = np.ones((1, 1, 16), np.float32), np.array([0])
    net(row, place)

    def lost(*_: object, **__: object) -> None:
        raise opencl.cl.RuntimeError("clFinish", -5, "lost")

    monkeypatch.setattr(opencl.cl, "enqueue_nd_range_kernel", lost)
    with pytest.raises(RunError, match="did not do its work"):
        net(row, place)
    monkeypatch.undo()
    for ask in (lambda: net.states, lambda: net(row, place)):
        with pytest.raises(RunError, match=r"are lost: reset\(\) them"):
            ask()
    net.reset()
    net(row, place)
    assert net.states["cache"].sum() == 16


def test_given_and_profiled_states_are_the_callers(device: str) -> None:
    """By names of tensors the session's states stay as they are, on the device, too."""
    net = modelcc.compile(decoder(), device, cache=None)
    net(np.ones((1, 1, 16), np.float32), np.array([0]))
    feeds = FEEDS["decoder"]
    (state,) = net.session.manifest.aliases
    found = net.session.run(feeds)[state]
    np.testing.assert_array_equal(found[0, 5], np.ones(16))
    np.testing.assert_array_equal(found[0, :5], feeds["cache"][0, :5])
    assert net.report({name: feeds[name] for name in ("row", "place")}).seconds is not None
    assert net.states["cache"].sum() == 16
    net(np.ones((1, 1, 16), np.float32), np.array([1]))
    assert net.states["cache"].sum() == 32
