"""Dimensions from the shapes of inputs, of which there may be thousands."""

from modelcc.artifact.manifest import DimSpec, MachineSpec, Manifest, TensorSpec
from modelcc.ir.index import Sym
from modelcc.ir.types import F32
from modelcc.runtime.signature import bind_dimensions
from tests.test_scaling import LINEAR, calls_of


def manifest(count: int) -> Manifest:
    """Inputs of which each has a dimension of its own and the one of the next, one longer."""
    names = [f"n{k}" for k in range(count + 1)]
    return Manifest(
        name="wide",
        entry="wide_run",
        inputs=tuple(
            TensorSpec(f"x{k}", F32, (Sym(names[k]), Sym(names[k + 1]) + 1)) for k in range(count)
        ),
        outputs=(),
        machine=MachineSpec("", "", ()),
        dims=tuple(DimSpec(name, 1, None) for name in names),
    )


def test_names_that_only_sums_tell_are_bound() -> None:
    assert bind_dimensions(manifest(2), [(4, 6), (5, 8)]) == {"n0": 4, "n1": 5, "n2": 7}


def test_four_times_the_dimensions_are_four_times_the_work() -> None:
    few, many = (
        calls_of(lambda count=count: bind_dimensions(manifest(count), [(2, 3)] * count))
        for count in (100, 400)
    )
    assert many / few < 4 * LINEAR
