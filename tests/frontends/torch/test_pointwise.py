"""Operators on single elements compute what PyTorch computes, of hostile numbers, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402
from modelcc.frontends.torch import import_exported  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

Function = Callable[..., Any]
fn, sp = torch.nn.functional, torch.special

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, 2.5, -2.5, 7.3, -7.3, float("inf"),
           -float("inf"), float("nan"), 1e-3, -1e-3, 1e-30, 30.5, -30.5, 65000.0)  # fmt: skip

TOLERANCES = {
    torch.float64: (1e-9, 1e-12),
    torch.float32: (2e-6, 6e-6),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-3),
}

UNARY: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad",
        "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf",
        "isnan", "isneginf", "isposinf", "isreal", "log", "log10", "log1p", "log2", "logit", "neg",
        "nan_to_num", "reciprocal", "relu", "round", "rsqrt", "sgn", "sigmoid", "sign", "signbit",
        "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "angle", "logical_not",
        "lgamma", "digamma", "i0",
    )},
    **{f"special.{name}": getattr(sp, name) for name in (
        "entr", "erfcx", "i0e", "i1e", "log_ndtr", "ndtr", "ndtri", "spherical_bessel_j0",
        "modified_bessel_k0", "scaled_modified_bessel_k1",
    )},
    **{name: getattr(fn, name) for name in (
        "celu", "elu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
        "leaky_relu", "logsigmoid", "mish", "relu6", "selu", "silu", "softplus", "softshrink",
        "softsign", "tanhshrink",
    )},
    "gelu": lambda x: fn.gelu(x.clamp(-20, 20)),  # of infinities NaN with 32 bits
    "gelu(tanh)": lambda x: fn.gelu(x.clamp(-20, 20), approximate="tanh"),
    "elu(2)": lambda x: fn.elu(x, 2.0),
    "softplus(2, 5)": lambda x: fn.softplus(x, 2.0, 5.0),
    "threshold": lambda x: fn.threshold(x, 0.25, 20.0),
    "rrelu": lambda x: fn.rrelu(x, training=False),
    "clamp": lambda x: torch.clamp(x, -0.75, 1.25),
    "clamp_min": lambda x: torch.clamp(x, min=0.25),
    "round(1)": lambda x: torch.round(x, decimals=1),
    "round(-1)": lambda x: torch.round(x, decimals=-1),
    "nan_to_num(1, 2, 3)": lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
    "powers": lambda x: torch.stack([x**p for p in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 4, 2.5)]),
    "bases": lambda x: torch.stack([b**x for b in (2, 0.5, 1)]),
    "rsub": lambda x: torch.rsub(x, 2.5, alpha=3),
    "masked_fill": lambda x: x.masked_fill(x > 0, -4.0),
    "polygamma(2)": lambda x: sp.polygamma(2, x.abs().clamp(0.25, 50)),
}  # fmt: skip

BINARY: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in (
        "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le",
        "gt", "ge", "atan2", "copysign", "hypot", "heaviside", "logaddexp", "logaddexp2", "xlogy",
        "fmod", "remainder", "floor_divide", "pow", "isclose", "logical_and", "logical_or",
        "logical_xor", "ldexp", "clamp",
    )},
    "xlog1py": sp.xlog1py,
    "add(alpha)": lambda x, y: torch.add(x, y, alpha=2.5),
    "div(trunc)": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "lerp": lambda x, y: torch.lerp(x, y, 0.75),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x, value=2.0),
    "addcmul": lambda x, y: torch.addcmul(x, y, x, value=2.0),
    "where": lambda x, y: torch.where(x > y, x, 2.0),
    "prelu": lambda x, y: torch.where(x > 0, x, y * x),
}  # fmt: skip

INTEGERS: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in (
        "add", "sub", "mul", "div", "maximum", "minimum", "eq", "lt", "ge", "bitwise_and",
        "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "logical_and",
        "copysign", "fmod", "remainder", "floor_divide", "fmin",
    )},
    "div(trunc)": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "unary": lambda x, _: torch.stack([-x, x.abs(), x.sign(), x.bitwise_not(), x.square(), x**3,
                                       x.floor(), x.round(), x.clamp(-3, 5), x.trunc()]),
    "to floats": lambda x, y: torch.stack([x.sin(), x * 0.5, x / 2, torch.sigmoid(x), x**0.5]),
    "tests": lambda x, _: torch.stack([x.isnan(), x.isinf(), x.signbit(), x.isfinite(), x == 7]),
}  # fmt: skip

BOOLS: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in (
        "add", "mul", "maximum", "minimum", "eq", "lt", "ge", "bitwise_and", "bitwise_or",
        "bitwise_xor", "logical_xor", "div",
    )},
    "unary": lambda x, _: torch.stack([~x, x.logical_not(), x.sign(), x.sgn(), x.isnan()]),
    "to numbers": lambda x, y: (x + 1) * (y * 2.5),
}  # fmt: skip


class Together(torch.nn.Module):
    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self._functions = tuple(functions.values())

    def forward(self, *xs: Any) -> Any:
        return [function(*xs) for function in self._functions]


def agrees(functions: Mapping[str, Function], *xs: Any) -> None:
    """All of ``functions`` of ``xs``, compiled as one program."""
    module = Together(functions)
    net = modelcc.compile(import_exported(torch.export.export(module, xs)), cache=None, optimize=1)
    found = net(*(x.contiguous().view(torch.int16).numpy().view("bfloat16")
                  if x.dtype == torch.bfloat16 else x.numpy() for x in xs))  # fmt: skip
    pairs = zip(functions, found, module(*xs), strict=True)
    wrong = {name: (ours, theirs) for name, ours, theirs in pairs if not _alike(ours, theirs)}
    assert not wrong


def _alike(ours: Any, theirs: Any) -> bool:
    rtol, atol = TOLERANCES.get(theirs.dtype, (0.0, 0.0))
    wide = theirs.to(torch.float64).numpy()
    same = str(theirs.dtype).removeprefix("torch.") == ours.dtype.name
    return (ours.shape == wide.shape and same
            and np.allclose(ours.astype(np.float64), wide, rtol, atol, equal_nan=True))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_one_operand(dtype: Any) -> None:
    spread = torch.linspace(-5, 5, 23).tolist()
    agrees(UNARY, torch.tensor([*SPECIAL, *spread], dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_two_operands(dtype: Any) -> None:
    x = torch.tensor(SPECIAL, dtype=dtype)
    agrees(BINARY, x[:, None], x[None, :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_floats(dtype: Any) -> None:
    names = ("add", "mul", "div", "maximum", "lt", "copysign", "where")
    x = torch.tensor([0.5, -0.0, 2.0, -3.0, float("nan"), float("inf")], dtype=dtype)
    agrees({name: BINARY[name] for name in names}, x[:, None], x[None, :])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_integers_up_to_the_last(dtype: Any) -> None:
    info = torch.iinfo(dtype)
    low = info.min + (dtype != torch.uint8)  # the least by -1 overflows, in PyTorch too
    x = torch.tensor([0, 1, 2, 7, info.max, low, *(() if low == 0 else (-1, -7))], dtype=dtype)
    divisors = x[x != 0]
    agrees(INTEGERS, x[:, None], divisors[None, :])


def test_as_many_steps_as_the_data_say() -> None:
    a, b = torch.tensor([0, 12, -18, 7, 1 << 40]), torch.tensor([0, 8, -27, 1 << 38])
    agrees({"gcd": torch.gcd, "lcm": torch.lcm}, a[:, None], b[None, :])
    names = [name for name in dir(sp) if "_polynomial_" in name and not name.startswith("_")]
    x = torch.tensor([0.3, -1.5, 1.0, -1.0, 2.25, 0.0], dtype=torch.float64)
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 5.7, 8.0, -0.5], dtype=torch.float64)
    agrees({name: getattr(sp, name) for name in names}, x[:, None], n[None, :])


def test_bools() -> None:
    x = torch.tensor([False, True])
    agrees(BOOLS, x[:, None], x[None, :])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.int64, torch.float32), (torch.bool, torch.int8), (torch.int32, torch.float64),
        (torch.uint8, torch.int8), (torch.float16, torch.bfloat16), (torch.bool, torch.float16),
        (torch.float32, torch.float64), (torch.uint8, torch.bool),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_differ(first: Any, second: Any) -> None:
    names = ("add", "mul", "div", "maximum", "lt", "eq", "pow", "where")
    functions = {name: BINARY[name] for name in names}
    x, y = torch.tensor([1, 0, 3]).to(first), torch.tensor([2, 1, 3]).to(second)
    agrees(functions, x, y)
    agrees(functions, x, y[0])  # a scalar tensor has a say only among other kinds
    agrees({"scalars": lambda x: (x + 2) * 1.5 * (x > 1), "bools": lambda x: x + True}, x)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)], ids=str)
def test_scalars_and_nothing(shape: tuple[int, ...]) -> None:
    names = ("add", "floor_divide", "atan2", "where", "lerp")
    n = torch.full(shape, 4)
    agrees({"gcd": torch.gcd, "hermite": sp.hermite_polynomial_h}, n, torch.full((), 6))
    x = torch.full(shape, 1.75)
    agrees({name: BINARY[name] for name in names}, x, torch.full((), 0.5))
    agrees({name: UNARY[name] for name in ("lgamma", "gelu", "round(1)", "isnan")}, x)


def test_operators_that_pytorch_s_rules_are_made_of() -> None:
    cases = {
        "converted": lambda x, y: torch.ops.prims.convert_element_type(x, torch.float64),
        "divided": lambda x, y: torch.ops.aten.true_divide.Tensor(x, y),
    }
    agrees(cases, torch.randn(3, 4), torch.randint(1, 9, (4,)))
