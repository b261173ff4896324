"""Probes compute what they say, and times become the model's numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from native_loops import call, compiled

from modelcc.ir.loop_text import print_function
from modelcc.ir.types import F32
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native import measuring, probes
from modelcc.targets.native.host import cpu_model
from modelcc.targets.native.measuring import Measured, measure
from modelcc.targets.native.toolchain import host_machine


def test_cycles_are_additions_and_exclusive_ors() -> None:
    arrays = {"y": np.array([7, 11, 5])}
    function = probes.cycles()
    call(compiled([function]), function, arrays, {"repeats": 3})
    expected = 7
    for _ in range(3 * probes.CYCLE_STEPS):
        expected = (expected + 11) ^ 5
    assert arrays["y"].tolist() == [expected, 11, 5]


def test_multiply_adds_are_as_many_as_they_say() -> None:
    function = probes.multiply_adds("f32", F32, 4, 3)
    y = np.arange(12, dtype=np.float32)
    arrays = {"a": np.full(4, 0.5, np.float32), "b": np.full(4, 2, np.float32), "y": y.copy()}
    call(compiled([function]), function, arrays, {"repeats": 5})
    np.testing.assert_allclose(arrays["y"], y / 32 + 4 * (1 - 1 / 32))


def test_byte_dots_are_added_to_sums() -> None:
    function = probes.byte_dots(4, 2)
    arrays: dict[str, np.ndarray] = {"y": np.arange(8, dtype=np.int32)}
    arrays |= {"a": np.full(16, 3, np.uint8), "b": np.full(16, -2, np.int8)}
    call(compiled([function]), function, arrays, {"repeats": 10})
    assert arrays["y"].tolist() == [n - 240 for n in range(8)]


@pytest.mark.parametrize("ahead", [0, 4096])
def test_reads_sum_all_numbers_each_time(ahead: int) -> None:
    function = probes.reads(128, ahead)
    assert ("prefetch" in print_function(function)) == (ahead > 0)
    x = np.arange(4 * probes.READS * 5, dtype=np.int32)
    arrays = {"x": x, "y": np.zeros(4 * probes.READS, np.int32)}
    call(compiled([function]), function, arrays, {"extent": len(x), "repeats": 3})
    assert arrays["y"].sum() == 3 * x.sum()


def test_a_chase_goes_on_where_it_ended() -> None:
    function = probes.chase()
    arrays = {"x": np.array([2, 0, 3, 1]), "y": np.array([0])}
    places = []
    for _ in range(4):
        call(compiled([function]), function, arrays, {"extent": 4, "repeats": 1})
        places.append(int(arrays["y"][0]))
    assert places == [2, 3, 1, 0]


def test_a_fork_reaches_each_thread() -> None:
    function = probes.fork(3)
    arrays = {"y": np.zeros(48, np.float32)}
    with ThreadPool(2) as pool:
        call(compiled([function], pool), function, arrays, {}, pool)
    assert np.flatnonzero(arrays["y"]).tolist() == [0, 16, 32]


FACTS = Measured(
    0.5e-9, {"f32": 28e9}, 4.2, {"L1": 120e9, "L2": 60.04e9, "memory": 10e9}, {}, None, 1
)
"""Of 2 GHz: 14 multiply-adds, 60 bytes per cycle."""


def test_known_processors_keep_their_pipes() -> None:
    bandwidths = (("l1_bandwidth", 60.0), ("l2_bandwidth", 30.0), ("memory_bandwidth", 5.0))
    model = CpuModel(vector_bits=256)
    assert FACTS.numbers(model, known=True) == bandwidths
    pipes = {"fma_latency": 4, "fmas": 2, "loads": 2}
    assert dict(FACTS.numbers(model, known=False)) == {**dict(bandwidths), **pipes}


@pytest.mark.parametrize(
    ("fetched", "ahead"),
    [
        ({"memory": 11e9}, 4096),
        ({"memory": 9e9}, 0),
        ({"L2": 50e9, "memory": 14e9}, 4096),
        ({"L2": 50e9, "memory": 11e9}, 0),
    ],
)
def test_reads_are_fetched_ahead_where_that_is_faster(
    fetched: dict[str, float], ahead: int
) -> None:
    facts = replace(FACTS, fetched=fetched)
    assert dict(facts.numbers(CpuModel(), known=True))["ahead_bytes"] == ahead


def test_measuring_takes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine: there is a number for everything, and it is none of nothing."""
    for name, value in (("SLICE", 1e-5), ("TRIES", 2), ("SMALLEST", 1 << 20), ("LARGEST", 1 << 20)):
        monkeypatch.setattr(measuring, name, value)
    machine = host_machine()
    model = cpu_model(machine, 1)
    told: list[int] = []
    facts = measure(machine, model, 1, lambda what, done, total: told.append(done))
    assert told == [0, 1, 2, 3]
    assert {"f32", "f64"} <= set(facts.multiply_adds)
    levels = {level.name for level in model.levels}
    assert set(facts.bandwidth) == set(facts.access) == levels
    assert set(facts.fetched) == levels - {"L1", "L2"}
    values = [facts.cycle, facts.latency, *facts.multiply_adds.values(), *facts.bandwidth.values()]
    assert all(0 < value < 1e15 for value in values)
    assert facts.fork_join is None
    assert facts.numbers(model, known=False)
