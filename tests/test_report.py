"""What a report says of the memory plan."""

from modelcc.ir.loop import Buffer, Function, Parameter
from modelcc.ir.program import Binding, Launch, Program
from modelcc.ir.types import F32, TensorType
from modelcc.report import report_of

KERNEL = Function(
    "copy",
    (
        Parameter(Buffer("x", F32, 16), mutable=False),
        Parameter(Buffer("y", F32, 16), mutable=True),
    ),
    (),
    (),
)


def test_a_tensor_is_live_until_its_view_is_read() -> None:
    """``v`` shows the memory of ``a``, which nobody may use while ``b`` comes and goes."""
    places = {"a": 0, "v": 0, "b": 64, "c": 128, "d": 64}
    flat = TensorType((16,), F32)
    bindings = {name: Binding(name, flat, "arena", offset) for name, offset in places.items()}
    bindings |= {"x": Binding("x", flat, "input"), "y": Binding("y", flat, "output")}
    pairs = (("x", "a"), ("x", "b"), ("b", "c"), ("c", "d"), ("v", "y"))
    steps = tuple(Launch("copy", pair) for pair in pairs)
    report = report_of(Program("p", ("x",), ("y",), bindings, (KERNEL,), steps, 192), "native", {})
    spans = {region.name: (region.first, region.last) for region in report.regions}
    assert spans["a"] == (0, 0)
    assert spans["v"] == (0, 4)
    assert report.lower_bound == 192
