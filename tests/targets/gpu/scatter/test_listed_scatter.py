"""Updates by lists: groups compute what NumPy does update by update, whoever comes first, and the
same bits as threads that walk all updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from group_products import without
from hypothesis import given
from hypothesis import strategies as st
from kernel_runs import interpreted, run_scheduled
from op_kernels import assert_close
from scatters import Updates

from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import OutOfBoundError
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel, Scatter
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import Array
from modelcc.ops.runtime_index import Combination
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupScatter, ListedScatter
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import H100, INTEGRATED, GpuModel
from modelcc.targets.gpu.scatter.group_updates import find_updates
from modelcc.targets.gpu.scatter.scatter_choice import updating
from modelcc.targets.gpu.schedule import schedule_groups

WARPS = ListedScatter(16, 4, 2, each=2, warp=4)
SCHEDULES = {
    "one by one": ListedScatter(4, 1, each=1),
    "shares of three": ListedScatter(8, 3, each=4),
    "columns": ListedScatter(8, 2, 4, each=2),
    "warps": WARPS,
    "a warp": ListedScatter(8, 4, 8, each=4, warp=8),
}
FLAT = Updates((20,), (50,), 0)
KINDS = {
    "places": FLAT,
    "few places": Updates((2,), (50,), 0),
    "places along the last axis": Updates((3, 7), (3, 33), 1),
    "places along the first axis": Updates((7, 5), (33, 3), 0),
    "rows": Updates((9, 12), (30, 1)),
    "rows of rows": Updates((4, 3, 8), (5, 3, 2)),
    "blocks": Updates((5, 2, 6), (17, 1)),
    "elements": Updates((5, 6), (40, 2)),
    "named rows": Updates((9, 11), (30, 1), named=True),
    "few named rows": Updates((9, 11), (5, 1), named=True),
    "no named rows": Updates((9, 4), (0, 1), named=True),
}


def computed(
    updates: Updates, schedule: Schedule, feeds: dict[str, Array], machine: GpuModel = H100
) -> Array:
    program = schedule_groups(updates.program(), schedule, machine)
    return updates.run(program, interpreted(program), feeds)


def agrees(updates: Updates, schedule: Schedule, seed: int = 1, spread: float = 1.0) -> None:
    feeds = updates.feeds(seed, spread)
    found = computed(updates, schedule, feeds)
    assert_close(found, updates.wanted(feeds))
    np.testing.assert_array_equal(found, computed(updates, GroupScatter(4, 2), feeds))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_updates_come_in_their_order(kind: str, schedule: str) -> None:
    columns = SCHEDULES[schedule].columns
    if columns > 1 and (KINDS[kind].axis is not None or kind == "elements"):
        pytest.skip("an update is one element")
    agrees(KINDS[kind], SCHEDULES[schedule])


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i32", "i64", "u8"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_all_reductions_and_types(reduction: Combination, dtype: str, index: str) -> None:
    feeds = 1 if reduction != "mul" else 2
    updates = Updates((6, 4), (11, 1), reduction=reduction, dtype=dtype, index=index)
    found = updates.feeds(feeds)
    np.testing.assert_array_equal(
        computed(updates, WARPS, found), computed(updates, GroupScatter(4, 2), found)
    )
    if dtype in ("f16", "bf16"):  # each sum is rounded
        return
    assert_close(computed(updates, WARPS, found), updates.wanted(found))


def test_booleans() -> None:
    updates = Updates((13,), (40,), 0, reduction="none", dtype="bool")
    agrees(updates, SCHEDULES["shares of three"])


@pytest.mark.parametrize("lanes", [2, 4])
def test_columns_in_vectors(lanes: int) -> None:
    for updates in (KINDS["rows"], KINDS["rows of rows"], Updates((9, 12), (30, 1), dtype="f16")):
        columns = 2 if updates.slices[-1] == 8 else 3
        agrees_in_bits(updates, ListedScatter(columns * 4, 2, columns, 2, lanes))


def agrees_in_bits(updates: Updates, schedule: ListedScatter) -> None:
    feeds = updates.feeds(3)
    wanted = computed(updates, GroupScatter(4, 2), feeds)
    np.testing.assert_array_equal(computed(updates, schedule, feeds), wanted)


@given(st.data())
def test_any_places(data: st.DataObject) -> None:
    """All alike, all different, or anything between."""
    count, rows = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 30))
    updates = Updates((rows,), (count,), 0, data.draw(st.sampled_from(["none", "add", "max"])))
    threads = data.draw(st.sampled_from([1, 2, 4, 8]))
    schedule = ListedScatter(
        threads,
        data.draw(st.integers(1, 9)),
        each=data.draw(st.integers(1, 5)),
        warp=data.draw(st.sampled_from([n for n in (1, 2, 4) if n <= threads])),
    )
    agrees(
        updates, schedule, data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0, 0.2, 1]))
    )


def test_all_updates_of_one_place() -> None:
    """That no index names: other groups have nothing to do."""
    text = """program @p(%x: f32[3], %u: f32[5, 3]) -> (%y) {
      scatter %x (%x: f32[3], %u: f32[5, 3]) { %y[j]: f32[3] = [i < 5, j < 3] sum[] %u[i, j] } }"""
    program = schedule_groups(parse_tensor_program(text, {}), ListedScatter(8, 3, 4, 1), H100)
    feeds = {"x": np.ones(3, np.float32), "u": np.arange(15, dtype=np.float32).reshape(5, 3)}
    found = run_scheduled(program, interpreted(program), feeds, {})["y"]
    np.testing.assert_array_equal(found, 1 + feeds["u"].sum(0))


@pytest.mark.parametrize("width", [4, 6, 8])
def test_rows_that_are_vectors_of_longer_ones(width: int) -> None:
    """Which may begin at no multiple of them."""
    tensors = f"%x: f32[3, {width}], %i: i64[20], %u: f32[20, 4]"
    text = f"""program @p({tensors}) -> (%y) {{
      scatter %x ({tensors}) {{
        %y[g, j]: f32[3, {width}] =
          [n < 20, j < 4] sum[] (let g = %i[n] below [3] of "x" in %u[n, j])
      }} }}"""
    schedule = ListedScatter(8, 2, 1, 1, lanes=4)
    program = schedule_groups(parse_tensor_program(text, {}), schedule, H100)
    x, u = np.ones((3, width), np.float32), np.arange(80, dtype=np.float32).reshape(20, 4)
    places = np.arange(20) % 3
    found = run_scheduled(program, interpreted(program), {"x": x, "i": places, "u": u}, {})["y"]
    wanted = x.copy()
    np.add.at(wanted[:, :4], places, u)
    np.testing.assert_array_equal(found, wanted)


def test_all_places_are_different() -> None:
    feeds = FLAT.feeds(1)
    updates = Updates((50,), (50,), 0)
    feeds = {**updates.feeds(1), "x1": np.random.default_rng(1).permutation(50)}
    np.testing.assert_array_equal(
        computed(updates, WARPS_FLAT, feeds), feeds["x0"] + feeds["x2"][np.argsort(feeds["x1"])]
    )


WARPS_FLAT = ListedScatter(16, 4, each=2, warp=4)


@pytest.mark.parametrize("place", [20, -21, 1 << 40])
@pytest.mark.parametrize("number", [0, 31, 49])
def test_a_place_out_of_range_is_found(place: int, number: int) -> None:
    feeds = FLAT.feeds(1)
    feeds["x1"][number] = place
    with pytest.raises(OutOfBoundError, match=f"index {place if place > 0 else -1} is outside"):
        computed(FLAT, WARPS_FLAT, feeds)


def test_barriers_are_needed() -> None:
    """One is missing, and threads race, or read what nobody wrote."""
    updates = Updates((20,), (100,), 0)
    program = schedule_groups(updates.program(), WARPS_FLAT, H100)
    feeds = updates.feeds(1)
    function = program.functions[-1]
    assert isinstance(function, Function)
    barriers = sum(isinstance(s, Barrier) for s in statements(function.body))
    assert barriers == 3
    for number in range(barriers):
        callees = (*program.callees[:-1], without(function, (Barrier,), number))
        with pytest.raises((RaceError, IndexError)):
            changed = replace(program, callees=callees)
            updates.run(changed, interpreted(changed), feeds)


@pytest.mark.parametrize(
    ("updates", "wanted", "message"),
    [
        (FLAT, ListedScatter(4, 0), "whole updates: threads, columns"),
        (FLAT, ListedScatter(6, 1, warp=4), "whole updates: threads, columns"),
        (FLAT, ListedScatter(6, 1, warp=3), "a power of two"),
        (FLAT, ListedScatter(4, 1, 2), "columns are theirs"),
        (FLAT, ListedScatter(4, 1, lanes=2), "no whole vectors"),
        (KINDS["rows"], ListedScatter(4, 1, lanes=8), "no whole vectors"),
        (Updates((9, 4), (1, 1)), ListedScatter(4, 1), "updates that may meet are listed"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    updates: Updates, wanted: ListedScatter, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(updates.program(), wanted, H100)


def chosen(updates: Updates, machine: GpuModel = H100) -> GroupScatter | ListedScatter:
    program = updates.program()
    (item,) = (item for item in program.items if isinstance(item, Scatter))
    kernel = Kernel("Scatter", item.inputs, item.outputs, (item.stage,))
    found = canonical(kernel, program.types, frozenset(), program.dims)[0]
    return updating(GroupKernel(found, "k"), find_updates(found), machine)


@pytest.mark.parametrize("machine", [H100, INTEGRATED], ids=lambda m: m.name)
def test_many_updates_are_listed(machine: GpuModel) -> None:
    for updates in (
        Updates((100_000, 64), (1_000_000, 1)),
        Updates((1_000_000,), (1_000_000,), 0),
        Updates((8, 1000), (8, 100_000), 1),
    ):
        assert isinstance(chosen(updates, machine), ListedScatter)


def test_a_named_number_of_updates_may_be_many() -> None:
    assert isinstance(chosen(Updates((100_000, 64), (1, 1), named=True)), ListedScatter)


def test_few_updates_are_not() -> None:
    """A row of a cache, and elements of which each thread has lists of its own."""
    for updates in (
        Updates((4096, 1024), (1, 1)),
        Updates((4096, 1024), (16, 1)),
        Updates((1024, 300_000), (1024, 300_000), 0),
    ):
        assert isinstance(chosen(updates), GroupScatter)


def test_an_embedding_has_vectors_of_columns() -> None:
    found = chosen(Updates((50_000, 768), (4096, 1)))
    assert isinstance(found, ListedScatter)
    assert (found.columns, found.lanes, found.warp) == (192, 4, 32)
