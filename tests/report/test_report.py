"""What a report says of the memory plan."""

from dataclasses import replace
from io import StringIO

import numpy as np
from rich.console import Console

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.loop import Buffer, Function, Parameter
from modelcc.ir.program import Binding, Launch, Placement, Program, Step
from modelcc.ir.region import Repeat
from modelcc.ir.types import F32, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Add, Identity
from modelcc.passes.tensor.rounding import winograd_rounding
from modelcc.report.page import report_page
from modelcc.report.report import StepRow, report_from_json, report_of
from modelcc.report.tables import kernel_table, report_tables

KERNEL = Function(
    "copy",
    (
        Parameter(Buffer("x", F32, 16), mutable=False),
        Parameter(Buffer("y", F32, 16), mutable=True),
    ),
    (),
    (),
)


def program_of(steps: tuple[Step, ...], places: dict[str, int]) -> Program:
    """From ``x`` to ``y`` by way of tensors at some places of an arena."""
    bindings = {name: Binding("arena", offset) for name, offset in places.items()}
    bindings |= {"x": Binding("input"), "y": Binding("output")}
    types = dict.fromkeys(bindings, TensorType((16,), F32))
    placement = Placement(bindings, 192)
    return Program("p", ("x",), ("y",), steps, types, (KERNEL,), placement=placement)


def test_a_tensor_is_live_until_its_view_is_read() -> None:
    """``v`` shows the memory of ``a``, which nobody may use while ``b`` comes and goes."""
    places = {"a": 0, "v": 0, "b": 64, "c": 128, "d": 64}
    pairs = (("x", "a"), ("x", "b"), ("b", "c"), ("c", "d"), ("v", "y"))
    steps = tuple(Launch("copy", pair) for pair in pairs)
    report = report_of(program_of(steps, places), "native", {})
    spans = {region.name: (region.first, region.last) for region in report.regions}
    assert spans["a"] == (0, 0)
    assert spans["v"] == (0, 4)
    assert report.lower_bound == 192


def product() -> Graph:
    make = GraphBuilder()
    x = make.input("x", TensorType((1, 64, 56, 56), F32))
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32)
    return make.build([make.emit(Conv((1, 1), (1, 1), (1, 1), (1, 1), 1), x, make.constant(w))])


def test_kernels_that_are_no_plain_sums_say_so() -> None:
    """On the way through an artifact, and in all forms; with strict accuracy there are none."""
    model = modelcc.compile(product(), cache=None)
    report = model.report()
    rows = [row for row in report.kernels if row.rounding != 1.0]
    assert [row.function for row in rows] == [
        row.function for row in report.kernels if row.function.endswith("_winograd")
    ]
    assert rows and rows[0].rounding == winograd_rounding(4, 64) == 8.28
    assert report_from_json(report.to_json()) == report
    assert "rounding 8.28 ×" in str(rows[0]) and "8.28 ×" in repr(report).splitlines()[0]
    shown = StringIO()
    Console(width=200, file=shown).print(report_tables(report))
    for text in (shown.getvalue(), report_page(report)):
        assert text.count("8.28 ×") == 2 and "rounding" in text
    strict = modelcc.compile(product(), cache=None, accuracy="strict").report()
    assert {row.rounding for row in strict.kernels} == {1.0}
    assert "rounding" not in repr(strict)


def test_a_loop_has_the_rounding_of_what_it_launches() -> None:
    launches = (Launch("copy", ("x", "y")), Launch("copy", ("x", "y"), rounding=4.5))
    steps: tuple[Step, ...] = (launches[0], Repeat("i", 3, (), (), launches))
    rows = report_of(program_of(steps, {}), "native", {}).kernels
    assert [row.rounding for row in rows] == [1.0, 4.5]


def test_states_say_whether_they_are_where_they_were() -> None:
    make = GraphBuilder()
    x = make.input("x", TensorType((4,), F32))
    names = [make.input(name, TensorType((4,), F32)) for name in ("sum", "last")]
    after = [make.emit(Add(), names[0], x), make.emit(Relu(), x)]
    after.append(make.emit(Identity(), after[1]))
    states = {"the sum": ("sum", after[0]), "the last": ("last", after[2])}
    report = modelcc.compile(with_states(make.build(after), states), cache=None).report()
    assert (list(report.inputs), len(report.outputs)) == (["x"], 1)
    wanted = [
        "the sum: f32[4], updated in place",
        "the last: f32[4], copied at the end of each call",
    ]
    assert [str(state) for state in report.states] == wanted
    assert report_from_json(report.to_json()) == report
    shown = StringIO()
    Console(width=200, file=shown).print(report_tables(report))
    for text in wanted:
        assert f"state {text}" in repr(report) and text in shown.getvalue()


def test_names_of_kernels_have_room_beside_times_and_roofs() -> None:
    """In 80 columns, as of a pipe."""
    names = ("k0_MatMul_Relu", "k1_Softmax")
    kernels = tuple(
        StepRow(n, name, ("node",), 10**9, 10**7, seconds=0.0123, roof=1e-3)
        for n, name in enumerate(names)
    )
    report = report_of(program_of((Launch("copy", ("x", "y")),), {}), "opencl", {})
    text = StringIO()
    table = kernel_table(replace(report, kernels=kernels))
    Console(file=text, width=80).print(table)
    assert all(name[:8] in text.getvalue() for name in names)
    assert "8%" in text.getvalue() and "81.3" in text.getvalue()
