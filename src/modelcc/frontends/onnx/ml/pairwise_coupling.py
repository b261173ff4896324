"""Class probabilities from pairwise ones, as produced by support vector machines.

Method 2 of Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise
coupling" (2004), by the iteration of its Algorithm 2, as in libsvm, scikit-learn and onnxruntime.
The exact minimum would differ from all of them by up to 0.01.
"""

from __future__ import annotations

import numpy as np

from modelcc.frontends.onnx.call import Call
from modelcc.ir.types import F32
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import Gather
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Concat, Expand
from modelcc.ops.views import cast, part, permuted, reshaped

ROUNDS = 100
"""Maximum iterations, unless there are more classes: libsvm's bound."""
TOLERANCE = 0.005
"""The iteration of a row ends once its residual is below this over the number of classes."""


def coupled(call: Call, pairs: Value, classes: int) -> Value:
    """Probabilities [n, classes] from those of each pair i < j that it is i, [n, pairs].

    They converge to the minimum of ``sum of (r_ji p_i - r_ij p_j)^2``.
    """
    form = _quadratic_form(pairs, classes)
    first = of(Expand((pairs.type.shape[0], classes)), pairs.lift(1 / classes))
    going = call.literal(np.array(True))

    def body(at: Iteration, states: list[Value]) -> tuple[list[Value], list[Value]]:
        return list(_round(at["form"], states[1])), []

    trips = max(ROUNDS, classes)
    _, likely = iterated(call, trips, [going, first], {"form": form}, body, conditional=True)
    return likely


def _quadratic_form(pairs: Value, classes: int) -> Value:
    """Q [n, k, k]: ``Q_ii = sum of r_ji^2 over j``, ``Q_ij = -r_ji r_ij``."""
    order = np.zeros((classes, classes), np.int64)
    upper = np.triu_indices(classes, 1)
    order[upper] = np.arange(len(upper[0]))
    order.T[upper] = order[upper] + len(upper[0])  # the second half holds 1 - r
    build = pairs.build
    both = of(Concat(1), pairs, 1.0 - pairs)
    table = of(Gather(1), both, Value(build, build.constant(order)))
    diagonal = Value(build, build.constant(np.eye(classes, dtype=np.bool_)))
    ahead = of(ew.Where(), diagonal, table.lift(0.0), table)
    squares = of(rd.ReduceSumSquare((1,), True), ahead)
    product = ahead * permuted(ahead, 0, 2, 1)
    return of(ew.Where(), diagonal, squares, -product)


def _classes(form: Value) -> int:
    count = form.type.shape[1]
    assert isinstance(count, int)
    return count


def _round(form: Value, likely: Value) -> tuple[Value, Value]:
    """Whether any row has not converged yet, and the next probabilities."""
    rows, classes = likely.type.shape
    slopes = reshaped(of(MatMul(), form, reshaped(likely, rows, classes, 1)), rows, classes)
    value = of(rd.ReduceSum((1,), True), likely * slopes)
    residual = of(rd.ReduceMax((1,), True), of(ew.Abs(), slopes - value))
    far = of(ew.GreaterOrEqual(), residual, residual.lift(TOLERANCE / _classes(form)))
    moved = likely
    for k in range(_classes(form)):
        moved, slopes, value = _moved(form, k, moved, slopes, value)
    any_far = of(rd.ReduceMax((0, 1), False), cast(far, F32))
    return of(ew.Greater(), any_far, any_far.lift(0.0)), of(ew.Where(), far, moved, likely)


def _moved(
    form: Value, k: int, likely: Value, slopes: Value, value: Value
) -> tuple[Value, Value, Value]:
    """Probabilities, ``Q p`` and ``p^T Q p`` after the update of class ``k``, normalised."""
    rows, classes = likely.type.shape
    row = reshaped(part(form, 1, k, 1), rows, classes)
    own, slope = part(row, 1, k, 1), part(slopes, 1, k, 1)
    step = (value - slope) / own
    total = step + 1.0
    here = np.eye(_classes(form), dtype=np.float32)[k : k + 1]
    grown = likely + step * Value(form.build, form.build.constant(here))
    value = (value + step * (step * own + slope * 2.0)) / total / total
    return grown / total, (slopes + step * row) / total, value
