"""The meaning of a warp's matrix instructions: routines on fragments of 16 rows or columns.

Sums ``%c`` are 16 x 16, operands ``%a`` 16 rows and ``%b`` 16 columns of as many terms (K) as have
:data:`DEPTH_BYTES`.  Fragments are buffers of space ``warp``, row by row as they are written here;
their distribution over threads is up to the machine.  Operands come from shared memory, with a
stride of ``stride`` elements between rows.
"""

from __future__ import annotations

from functools import cache

from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import (
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    Load,
    MulAdd,
    Parameter,
    ScalarCall,
    Splat,
    Stmt,
    Store,
)
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, U8, U32, DType

SIDE = 16
DEPTH_BYTES = 32
MOST_EVERY = 4
"""Fragments whose columns alternate, so that a thread loads its elements of all of them at once."""

INTEGERS = (I8, U8)
"""Integers, of which two operands may have different ones."""

OPERANDS = (F16, BF16, F32, *INTEGERS, F8E4M3FN, F8E5M2)
"""Types of operands; f32 is multiplied as TF32, with 10 bits of mantissa, or exactly."""

_ROW, _TERM, _PART, _STRIDE = Sym("i"), Sym("k"), Sym("h"), Sym("stride")
HALF, KEPT = 0x1000, 0xFFFFE000
"""Half of TF32's last bit, and a mask of the bits that it has."""


def depth(dtype: DType) -> int:
    """Terms of an operand's fragment."""
    return DEPTH_BYTES // dtype.bytes


def fragment_bytes(warp: int) -> int:
    """Bytes of an operand's fragment that a thread of a ``warp`` holds."""
    return SIDE * DEPTH_BYTES // warp


def sums_of(dtype: DType) -> DType:
    """The type in which products of operands are accumulated."""
    return I32 if dtype in INTEGERS else F32


@cache
def load_a(dtype: DType, transposed: bool = False, every: int = 1) -> Function:
    """``a[i, k] = source[stride*i + k]``; transposed, ``source[stride*k + every*i]``."""
    terms = depth(dtype)
    first, step = (every * _ROW, _STRIDE) if transposed else (_STRIDE * _ROW, 1)
    copy = Store("a", terms * _ROW, Load("source", first, dtype, terms, step))
    rows, last = (terms, every * (SIDE - 1)) if transposed else (SIDE, terms - 1)
    source = Buffer("source", dtype, (rows - 1) * _STRIDE + last + 1)
    name = f"load_a_{dtype}{'_t' if transposed else ''}{f'_{every}' if every > 1 else ''}"
    return _routine(name, (_written("a", dtype, terms), Parameter(source)), _rows(copy), True)


@cache
def load_b(dtype: DType, transposed: bool = False, every: int = 1) -> Function:
    """``b[k, j] = source[stride*k + every*j]``; transposed, ``source[stride*j + k]``."""
    terms = depth(dtype)
    first, step = (_TERM, _STRIDE) if transposed else (_STRIDE * _TERM, every)
    copy = Store("b", SIDE * _TERM, Load("source", first, dtype, SIDE, step))
    rows, last = (SIDE, terms - 1) if transposed else (terms, every * (SIDE - 1))
    source = Buffer("source", dtype, (rows - 1) * _STRIDE + last + 1)
    name = f"load_b_{dtype}{'_t' if transposed else ''}{f'_{every}' if every > 1 else ''}"
    body = For("k", 0, terms, (copy,))
    return _routine(name, (_written("b", dtype, terms), Parameter(source)), body, True)


@cache
def clear_c(sums: DType) -> Function:
    """``c = 0``."""
    body = _rows(Store("c", SIDE * _ROW, Const(0, sums, SIDE)))
    return _routine(f"clear_c_{sums}", (_written("c", sums, SIDE),), body)


@cache
def multiply(
    dtype: DType, exact: bool = False, together: int = 1, other: DType | None = None
) -> Function:
    """``c += a b``, with products as exact as ``dtype`` implies, added in the type of sums;
    products of f32 are exact only if ``exact``.  ``a`` and ``b`` may be several fragments
    ``together``, each with the terms that follow those of the previous one.  ``b`` has an ``other``
    type only if both are integers."""
    other = dtype if other is None else other
    sums, terms = sums_of(dtype), depth(dtype)
    first = SIDE * terms * _PART if together > 1 else 0
    a = Load("a", first + terms * _ROW + _TERM, dtype)
    b = Load("b", first + SIDE * _TERM, other, SIDE)
    left, right = (e if exact and dtype == F32 else _widened(e, sums) for e in (a, b))
    total = MulAdd(Splat(left, SIDE), right, Load("c", SIDE * _ROW, sums, SIDE))
    body = For("k", 0, terms, (Store("c", SIDE * _ROW, total),))
    if together > 1:
        body = For(_PART.name, 0, together, (body,))
    body = _rows(body)
    taken = (_read("a", dtype, together * terms), _read("b", other, together * terms))
    name = f"multiply_{dtype}{'' if other == dtype else f'_{other}'}"
    name += f"{'_exact' if exact and dtype == F32 else ''}"
    name += f"_{together}" if together > 1 else ""
    return _routine(name, (_written("c", sums, SIDE), *taken), body)


@cache
def scale_c() -> Function:
    """``c[i, j] *= factors[i]``, of sums in f32."""
    factor = Load("factors", _ROW, F32)
    scaled = ScalarCall("mul", (Load("c", SIDE * _ROW, F32, SIDE), Splat(factor, SIDE)), F32, SIDE)
    taken = _written("c", F32, SIDE), Parameter(Buffer("factors", F32, SIDE))
    return _routine("scale_c_f32", taken, _rows(Store("c", SIDE * _ROW, scaled)))


@cache
def boundary() -> Function:
    """No operation: what is before it is started before what is after it."""
    return Function("boundary", (), (), ())


@cache
def operand_of(dtype: DType) -> Function:
    """``a = c``, of sums in f32, rounded to a 16-bit ``dtype``."""
    value = Convert(Load("c", SIDE * _ROW, F32, SIDE), dtype)
    body = _rows(Store("a", SIDE * _ROW, value))
    taken = _written("a", dtype, SIDE), _read("c", F32, SIDE)
    return _routine(f"operand_of_{dtype}", taken, body)


@cache
def store_c(sums: DType, to: DType, every: int = 1) -> Function:
    """``to[stride*i + every*j] = c[i, j]``, converted."""
    value: Expr = Load("c", SIDE * _ROW, sums, SIDE)
    body = _rows(Store("to", _STRIDE * _ROW, value if to == sums else Convert(value, to), every))
    last = (SIDE - 1) * _STRIDE + every * (SIDE - 1)
    target = Parameter(Buffer("to", to, last + 1), mutable=True)
    name = f"store_c_{sums}_{to}{f'_{every}' if every > 1 else ''}"
    return _routine(name, (target, _read("c", sums, SIDE)), body, True)


def _widened(e: Expr, sums: DType) -> Expr:
    return Convert(e, sums) if e.dtype != F32 else rounded_to_tf32(e)


def rounded_to_tf32(e: Expr) -> Expr:
    """The nearest TF32 number, ties away from 0."""
    return _kept(ScalarCall("add", (Bitcast(e, U32), Const(HALF, U32, e.lanes)), U32, e.lanes))


def cut_to_tf32(e: Expr) -> Expr:
    """The next TF32 number towards 0."""
    return _kept(Bitcast(e, U32))


def _kept(bits: Expr) -> Expr:
    return Bitcast(ScalarCall("and", (bits, Const(KEPT, U32, bits.lanes)), U32, bits.lanes), F32)


def _rows(body: Stmt) -> For:
    return For("i", 0, SIDE, (body,))


def _fragment(name: str, dtype: DType, terms: Index) -> Buffer:
    return Buffer(name, dtype, SIDE * terms)


def _written(name: str, dtype: DType, terms: Index) -> Parameter:
    return Parameter(_fragment(name, dtype, terms), mutable=True)


def _read(name: str, dtype: DType, terms: Index) -> Parameter:
    return Parameter(_fragment(name, dtype, terms))


def _routine(
    name: str, parameters: tuple[Parameter, ...], body: For, strided: bool = False
) -> Function:
    return Function(name, parameters, ("stride",) if strided else (), (body,))
