"""Handlers of functions with a data-dependent number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.torch.aten import Aten, Handler, Operand, table
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import F64, I32, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import where
from modelcc.ops.control import Loop
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.views import cast

Step = Callable[[Sequence[Value]], Sequence[Value]]
Going = Callable[[Sequence[Value]], Value]


def repeated(
    call: Aten, states: Sequence[Value], going: Going, step: Step, most: int | None = None
) -> tuple[Value, ...]:
    """``step`` of the states while ``going`` holds for any element, at most ``most`` times."""
    emitter = Emitter(GraphBuilder("steps", call.bounds), call.bounds, inner=True)
    inner = replace(call, emitter=emitter)
    emitter.builder.input("going", call.type_of(_any(going(states)).name))
    inside = [Value(inner, emitter.builder.input(f"state{i}", s.type))
              for i, s in enumerate(states)]  # fmt: skip
    following = step(inside)
    results = [emitter.stored(v.name) for v in (_any(going(following)), *following)]
    body = emitter.builder.build(results)
    counter = next(name for i in count() if (name := f"step{i}") not in call.bounds)
    loop = Loop(body, counter, most, 1 + len(states), True)
    return call.many(loop, _any(going(states)), *states)[1:]


def _any(bools: Value) -> Value:
    axes = tuple(range(bools.type.rank))
    most = of(ReduceMax(axes, False), cast(bools, I32))  # the minimum of the type if empty
    return of(ew.Greater(), most, most.lift(0))


def _wide(call: Aten, x: Operand) -> Value:
    """``x`` expanded to the shape of the result."""
    return of(Expand(call.extents()), call.as_value(x))


def greatest_divisor(call: Aten, x: Operand, y: Operand) -> Value:
    """By Euclid's algorithm."""

    def going(states: Sequence[Value]) -> Value:
        return of(ew.NotEqual(), states[1], states[1].lift(0))

    def step(states: Sequence[Value]) -> Sequence[Value]:
        a, b = states
        open_ = going(states)
        return where(open_, b, a), where(open_, of(ew.Mod(), a, where(open_, b, 1)), 0)

    magnitudes = [of(ew.Abs(), _wide(call, operand)) for operand in (x, y)]
    return repeated(call, magnitudes, going, step)[0]


def least_multiple(call: Aten, x: Operand, y: Operand) -> Value:
    divisor = greatest_divisor(call, x, y)
    none = of(ew.Equal(), divisor, divisor.lift(0))
    share = of(ew.Div(), call.as_value(x), where(none, 1, divisor))
    return of(ew.Abs(), share * call.as_value(y))


Second = Callable[[Value], Value]
Recurrence = Callable[[Value, Value, Value, Value], Value]
"""The next polynomial, of degree ``k + 1``, from k, x, the last one and the one before."""


def orthogonal(second: Second, following: Recurrence, shifted: bool = False) -> Handler:
    """Polynomials of degree n by their recurrence, in f64; 0 for negative n."""

    def handler(call: Aten, x: Operand, n: Operand) -> Value:
        a = of(Expand(call.extents()), call.as_value(x, F64))
        a = a * 2.0 - 1.0 if shifted else a
        # Through the promoted type, as PyTorch does.
        degree = cast(call.as_value(call.as_value(n), I64), F64)
        degree = of(Expand(call.extents()), degree)

        def going(states: Sequence[Value]) -> Value:
            return of(ew.Less(), states[0], states[4])

        def step(states: Sequence[Value]) -> Sequence[Value]:
            k, before, this, point, last = states
            open_ = going(states)
            after = following(k, point, this, before)
            return (where(open_, k + 1.0, k), where(open_, this, before),
                    where(open_, after, this), point, last)  # fmt: skip

        one = a * 0.0 + 1.0
        found = repeated(call, (one, one, second(a), a, degree), going, step)[2]
        found = where(of(ew.Equal(), degree, degree.lift(0.0)), 1.0, found)
        found = where(of(ew.Less(), degree, degree.lift(0.0)), 0.0, found)
        return cast(found, call.result.dtype)

    return handler


def _doubled(k: Value, x: Value, this: Value, before: Value) -> Value:
    return x * this * 2.0 - before


CHEBYSHEV: dict[str, Second] = {
    "t": lambda x: x,
    "u": lambda x: x * 2.0,
    "v": lambda x: x * 2.0 - 1.0,
    "w": lambda x: x * 2.0 + 1.0,
}
"""Those of degree 1, by kind."""

ITERATION = table(
    gcd=greatest_divisor,
    lcm=least_multiple,
    **{f"special_chebyshev_polynomial_{kind}": orthogonal(second, _doubled)
       for kind, second in CHEBYSHEV.items()},
    **{f"special_shifted_chebyshev_polynomial_{kind}": orthogonal(second, _doubled, True)
       for kind, second in CHEBYSHEV.items()},
    special_hermite_polynomial_h=orthogonal(
        lambda x: x * 2.0, lambda k, x, this, before: (x * this - k * before) * 2.0
    ),
    special_hermite_polynomial_he=orthogonal(
        lambda x: x, lambda k, x, this, before: x * this - k * before
    ),
    special_laguerre_polynomial_l=orthogonal(
        lambda x: 1.0 - x,
        lambda k, x, this, before: ((k * 2.0 + 1.0 - x) * this - k * before) / (k + 1.0),
    ),
    special_legendre_polynomial_p=orthogonal(
        lambda x: x,
        lambda k, x, this, before: ((k * 2.0 + 1.0) * x * this - k * before) / (k + 1.0),
    ),
)  # fmt: skip
