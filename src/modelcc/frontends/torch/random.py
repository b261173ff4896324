"""Handlers of random numbers of exported programs: other numbers than PyTorch's.

A compiled model is a function: the same inputs give the same outputs, so every call sees the same
numbers, seeded by the names of the operators in the graph.  Under torch.compile PyTorch draws them,
and this table is not used.
"""

from __future__ import annotations

import math
from zlib import crc32

from modelcc.frontends.kit import random
from modelcc.frontends.torch.activations import rrelu as evaluated_rrelu
from modelcc.frontends.torch.aten import Aten, Operand, overloads
from modelcc.frontends.torch.searches import before
from modelcc.ir.types import BOOL, F32, F64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where
from modelcc.ops.cumulative import CumSum
from modelcc.ops.top_k import TopK
from modelcc.ops.views import cast, part


def _seed(call: Aten) -> int:
    """A seed from the operator's name, the last of its location before the file."""
    return crc32(call.source[-1].split(" ")[0].encode())


def _uniform(call: Aten) -> Value:
    return random.uniform(call, call.extents(), _seed(call))


def _normal(call: Aten) -> Value:
    return random.normal(call, call.extents(), _seed(call))


def rand(call: Aten, *_: object) -> Value:
    return cast(_uniform(call), call.result.dtype)


def randn(call: Aten, *_: object) -> Value:
    return cast(_normal(call), call.result.dtype)


def uniform(call: Aten, x: Value, low: float = 0.0, high: float = 1.0, *_: object) -> Value:
    return cast(_uniform(call) * (high - low) + low, call.result.dtype)


def normal(call: Aten, x: Value, mean: float = 0.0, std: float = 1.0, *_: object) -> Value:
    return cast(_normal(call) * std + mean, call.result.dtype)


def normal_of(call: Aten, mean: Operand, std: Operand = 1.0, *_: object) -> Value:
    """With a mean and a deviation per element."""
    wide = _normal(call) * call.as_value(std, F32) + call.as_value(mean, F32)
    return cast(wide, call.result.dtype)


def log_normal(call: Aten, x: Value, mean: float = 1.0, std: float = 2.0, *_: object) -> Value:
    return cast(of(ew.Exp(), _normal(call) * std + mean), call.result.dtype)


def exponential(call: Aten, x: Value, lambd: float = 1.0, *_: object) -> Value:
    return cast(_logarithm(call) / -lambd, call.result.dtype)


def geometric(call: Aten, x: Value, p: float, *_: object) -> Value:
    return cast(of(ew.Floor(), _logarithm(call) / math.log1p(-p)) + 1.0, call.result.dtype)


def _logarithm(call: Aten) -> Value:
    """Logarithm of uniform numbers in (0, 1]."""
    return of(ew.Log(), 1.0 - _uniform(call))


def cauchy(call: Aten, x: Value, median: float = 0.0, sigma: float = 1.0, *_: object) -> Value:
    turn = of(ew.Tan(), (_uniform(call) - 0.5) * math.pi)
    return cast(turn * sigma + median, call.result.dtype)


def randint(call: Aten, high: Operand, *_: object) -> Value:
    return randint_from(call, 0, high)


def randint_from(call: Aten, low: Operand, high: Operand, *_: object) -> Value:
    first, last = call.as_value(low, F64), call.as_value(high, F64)
    drawn = of(ew.Floor(), cast(_uniform(call), F64) * (last - first)) + first
    return cast(drawn, call.result.dtype)


def randint_like(call: Aten, x: Value, high: Operand, *_: object) -> Value:
    return randint_from(call, 0, high)


def randint_like_from(call: Aten, x: Value, low: Operand, high: Operand, *_: object) -> Value:
    return randint_from(call, low, high)


def bernoulli(call: Aten, p: Value, *_: object) -> Value:
    return _thrown(call, cast(p, F32))


def bernoulli_of(call: Aten, x: Value, p: Operand = 0.5, *_: object) -> Value:
    return _thrown(call, call.as_value(p, F32))


def _thrown(call: Aten, p: Value) -> Value:
    return cast(of(ew.Less(), _uniform(call), p), call.result.dtype)


def multinomial(call: Aten, p: Value, count: int, replacement: bool = False, *_: object) -> Value:
    """By prefix sums, or without replacement the first arrivals at rates ``p`` (exponential
    races)."""
    axis, noise = p.type.rank - 1, 1.0 - random.uniform(call, p.type.shape, _seed(call))
    if not replacement:
        return call.many(TopK(count, axis, True), cast(p, F32) / -of(ew.Log(), noise))[1]
    ends = of(CumSum(axis), cast(p, F32))
    total = part(ends, axis, p.type.shape[axis] - 1, 1)
    found = before(call, ends, _uniform(call) * total, right=True)
    return of(ew.Min(), found, call.as_value(p.type.shape[axis] - 1))


def dropout(call: Aten, x: Value, p: float, train: bool | None = None) -> tuple[Value, Value]:
    """The kept elements of ``x``, scaled, and the mask."""
    share = 0.0 if train is False else p
    drawn = _uniform(call)
    kept = of(ew.GreaterOrEqual(), drawn, drawn.lift(share))
    scale = 1.0 / (1.0 - share) if share < 1 else 0.0
    return where(kept, x * scale, 0.0), cast(kept, BOOL)


def rrelu(
    call: Aten, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, *_: object,
) -> tuple[Value, Value]:  # fmt: skip
    """In training a slope is drawn for each negative element."""
    if not training:
        return evaluated_rrelu(call, x, noise, lower, upper)
    slope = cast(_uniform(call) * (upper - lower) + lower, x.type.dtype)
    factor = where(above(x, 0.0), 1.0, slope)
    return x * factor, factor


RANDOM = overloads(
    {
        "rrelu_with_noise_functional": rrelu,
        "rand": rand,
        "rand_like": rand,
        "randn": randn,
        "randn_like": randn,
        "uniform": uniform,
        "normal_functional": normal,
        "normal": normal_of,
        "log_normal": log_normal,
        "exponential": exponential,
        "geometric": geometric,
        "cauchy": cauchy,
        "randint": randint,
        "randint.low": randint_from,
        "randint_like": randint_like,
        "randint_like.low_dtype": randint_like_from,
        "bernoulli": bernoulli,
        "bernoulli.p": bernoulli_of,
        "bernoulli.Tensor": bernoulli_of,
        "multinomial": multinomial,
        "native_dropout": dropout,
    }
)
