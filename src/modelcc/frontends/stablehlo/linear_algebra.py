"""Triangular systems, matrix factorisations, Fourier transforms; jax's calls of LAPACK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from modelcc.frontends.kit import linear_algebra as la
from modelcc.frontends.kit.complex_functions import Complex
from modelcc.frontends.kit.complex_values import ComplexValue, as_parts, of_parts
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.fourier import Form, transformed
from modelcc.frontends.kit.matrices import batched, identity, swapped
from modelcc.frontends.stablehlo.call import Handler, HloCall, table
from modelcc.ir.types import F32, F64, I32
from modelcc.ops.arithmetic import Value
from modelcc.ops.broadcast import reshaped
from modelcc.ops.generate import Full
from modelcc.ops.linear_algebra import Lu
from modelcc.ops.orthogonal import HouseholderQr
from modelcc.ops.views import cast


def _computed(call: HloCall, number: int = 0) -> Value:
    """An operand, converted to f32 if it is narrower."""
    x = call.value(number)
    if not x.type.dtype.is_float:
        unsupported(f"matrices of {x.type.dtype}")
    return cast(x, F32) if x.type.dtype.bits <= 16 else x


def _solved(call: HloCall, left: bool, lower: bool, unit: bool, turned: bool) -> str:
    """``lower`` refers to ``a`` before it is transposed."""
    a, b = batched(call.bounds, _computed(call, 0), _computed(call, 1))
    solve = la.solved if left else la.solved_right
    found = solve(swapped(a) if turned else a, b, lower != turned, unit)
    return cast(found, call.dtype()).name


def triangular_solve(call: HloCall) -> str:
    turned = call.attribute("transpose_a") in ("TRANSPOSE", "ADJOINT")
    left, lower = bool(call.attribute("left_side")), bool(call.attribute("lower"))
    return _solved(call, left, lower, bool(call.attribute("unit_diagonal")), turned)


def cholesky(call: HloCall) -> str:
    found, _ = la.cholesky(_computed(call), bool(call.attribute("lower", False)))
    return cast(found, call.dtype()).name


def option(call: HloCall, name: str) -> str:
    """The letter of LAPACK's option ``name``."""
    found: Mapping[str, int] = call.attribute("mhlo.backend_config") or {}
    return chr(found.get(name, 0))


Named = Callable[[HloCall], Sequence[Value]]


def _listed(function: Named) -> Handler:
    return lambda call: [x.name for x in function(call)]


def potrf(call: HloCall) -> Sequence[Value]:
    """The factor, and for each matrix 0 on success."""
    return la.cholesky(_computed(call), option(call, "uplo") == "L")


def trsm(call: HloCall) -> str:
    turned, left = option(call, "trans_x") != "N", option(call, "side") == "L"
    return _solved(call, left, option(call, "uplo") == "L", option(call, "diag") == "U", turned)


def getrf(call: HloCall) -> Sequence[Value]:
    """LAPACK's pivots are 1-based."""
    packed, pivots, info = la.results(Lu(), _computed(call))
    return packed, pivots + 1, info


def geqrf(call: HloCall) -> Sequence[Value]:
    return la.results(HouseholderQr(), _computed(call))


def orgqr(call: HloCall) -> Sequence[Value]:
    a, tau = _computed(call, 0), _computed(call, 1)
    m, n = a.type.shape[-2:]
    own = la.block(a, m, tau.type.shape[-1])
    return (la.reflected(own, tau, identity(a, m, n)),)


def gesdd(call: HloCall) -> Sequence[Value]:
    """The overwritten operand, singular values and vectors, and 0 for each matrix."""
    x, mode = _computed(call), option(call, "mode")
    u, values, v = la.svd(x, mode == "A", call.bounds)
    if mode == "N":
        u, v = (_zeros(call, n) for n in (2, 3))
    return x, values, u, v, _zeros(call, 4)


def syevd(call: HloCall) -> Sequence[Value]:
    """Eigenvectors, eigenvalues, and 0 for each matrix."""
    values, vectors = la.eigh(_computed(call), option(call, "uplo") == "L")
    return vectors, values, _zeros(call, 2)


def geev(call: HloCall) -> Sequence[str]:
    """Eigenvalues, of real matrices as two parts, left and right eigenvectors, 0 for each matrix.

    They are computed in f64.
    """
    if option(call, "compute_left") == "V":
        unsupported("eigenvectors of the left side")
    group = call.emitter.find_group(call.input(0))
    re, *im = map(call.as_value, group.parts if group else call.inputs)
    wide = cast(re, F64)
    found = la.eig(Complex(wide, cast(im[0], F64) if im else wide * 0.0), not im)
    values, vectors = ([cast(z.re, re.type.dtype), cast(z.im, re.type.dtype)] for z in found)
    whole = call.group(ComplexValue(*(part.name for part in vectors)))
    if not im:
        return [*(part.name for part in values), whole, whole, _zeros(call, 4).name]
    own = call.group(ComplexValue(*(part.name for part in values)))
    return [own, whole, whole, _zeros(call, 3).name]


def _zeros(call: HloCall, number: int) -> Value:
    dtype = call.op.types[number].dtype
    return call.made(Full(call.static_shape(number), 0, dtype or I32))


def fft(call: HloCall) -> str:
    """Along the last axes, the last one first, or last for a transform to real numbers."""
    kind, lengths = str(call.attribute("fft_type")), call.integers("fft_length")
    if min(lengths) < 1:
        unsupported("transforms of no numbers")
    x = call.input(0)
    x = reshaped(call, x, (*call.shape(), 1)) if kind == "RFFT" else as_parts(call.emitter, x)
    first = call.type_of(x).rank - 1 - len(lengths)
    order = range(len(lengths))
    for n in order if kind == "IRFFT" else reversed(order):
        halved = kind in ("RFFT", "IRFFT") and n == len(lengths) - 1
        x = transformed(call, x, first + n, Form("I" in kind, halved), lengths[n])
    if kind == "IRFFT":
        return reshaped(call, x, call.type_of(x).shape[:-1])
    return of_parts(call.emitter, x)


LINEAR_ALGEBRA = table(triangular_solve=triangular_solve, cholesky=cholesky, fft=fft)
LAPACK: Mapping[str, Handler] = MappingProxyType(
    {
        f"lapack_{letter}{name}_ffi": handler
        for letter in "sd"
        for name, handler in (
            ("trsm", trsm),
            ("potrf", _listed(potrf)),
            ("getrf", _listed(getrf)),
            ("geqrf", _listed(geqrf)),
            ("orgqr", _listed(orgqr)),
            ("gesdd", _listed(gesdd)),
            ("syevd", _listed(syevd)),
        )
    }
    | {f"lapack_{letter}geev_ffi": geev for letter in "sdcz"}
)
"""Custom calls of jax on CPUs."""
FACTORS: Mapping[str, str] = MappingProxyType(
    {
        "gees": "Schur forms of matrices",
        "gehrd": "Hessenberg forms of matrices",
        "geqp3": "QR factors whose columns are exchanged",
        "gtsv": "tridiagonal systems",
        **dict.fromkeys(("sytrd", "hetrd"), "tridiagonal forms of matrices"),
        **dict.fromkeys(("ormqr", "unmqr"), "products with reflections that are not written out"),
    }
)
"""Functions of LAPACK routines without a handler."""
