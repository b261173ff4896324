"""Common parts of LayerNorm and RMSNorm in exported formulas."""

from __future__ import annotations

from modelcc.ir.graph import Node
from modelcc.ir.rewriting import Rewriter
from modelcc.ops.elementwise import Div, Mul
from modelcc.ops.reduce import ReduceMean
from modelcc.passes.graph.products import inverse_root, made_by, plus_scalar, product


def normalised_by_root(node: Node, at: Rewriter) -> tuple[int, float, str] | None:
    """(axis, epsilon, x) if ``node`` is ``x / sqrt(mean(x²) + epsilon)`` over trailing axes."""
    if not isinstance(node.op, Mul | Div):
        return None
    result = node.outputs[0]
    for name, power in product(at, result).powers.items():
        mean = _mean_square(at, inverse_root(at, name, power))
        if mean is None:
            continue
        axis, epsilon, square = mean
        for x in _bases(at, square):
            whole = product(at, result, frozenset((x, name)))
            same_type = at.type_of(x) == at.type_of(result)
            if same_type and whole.is_like(1.0, {x: 1, name: power}):
                return axis, epsilon, x
    return None


def _mean_square(at: Rewriter, name: str | None) -> tuple[int, float, str] | None:
    """(axis, epsilon, square) if ``name`` is the mean of square over trailing axes plus epsilon."""
    shifted = plus_scalar(at, name) if name is not None else None
    mean = made_by(at, shifted[0], ReduceMean) if shifted is not None else None
    if mean is None or shifted is None:
        return None
    axis = trailing_axis(mean, at)
    return None if axis is None else (axis, shifted[1], mean.inputs[0])


def trailing_axis(mean: Node, at: Rewriter) -> int | None:
    """First of the reduced axes, if they are the last ones and are kept with extent 1."""
    rank = at.type_of(mean.inputs[0]).rank
    match mean.op:
        case ReduceMean(axes, True) if axes and tuple(axes) == tuple(range(axes[0], rank)):
            return axes[0]
        case _:
            return None


def _bases(at: Rewriter, square: str) -> tuple[str, ...]:
    """Values whose square this is."""
    node = at.producer(square)
    names = dict.fromkeys(node.inputs) if node is not None else ()
    return tuple(n for n in names if product(at, square, frozenset((n,))).is_like(1.0, {n: 2}))


def fits_trailing(at: Rewriter, parameter: str, name: str, axis: int) -> bool:
    """Whether a constant has the extents of ``name`` from ``axis`` on, and ones before."""
    data = at.constant_value(parameter)
    if data is None:
        return False
    inner = at.type_of(name).shape[axis:]
    lead = data.ndim - len(inner)
    return lead >= 0 and data.shape[lead:] == inner and data.size == data[(0,) * lead].size


def squeezed(at: Rewriter, constant: str, rank: int) -> str:
    """The constant without leading ones down to ``rank`` axes."""
    data = at.constant_value(constant)
    if data is None or data.ndim <= rank:
        return constant
    return at.constant(data.reshape(data.shape[data.ndim - rank :]))
