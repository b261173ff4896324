"""Complex tensors against NumPy's arrays, and their gradients against finite differences."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import modelcc
import modelcc.numpy as mnp
from modelcc import ComplexTensor, ModelError, Tensor
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.trees import flatten
from tests.tensor.differences import differences

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3))
Z = X + 1j * RNG.normal(size=(2, 3))
W = RNG.normal(size=3) + 1j * RNG.normal(size=3)
F = X.astype(np.float32)
C = Z.astype(np.complex64)

EXPRESSIONS: tuple[Callable[[Any, Any], Any], ...] = (
    *(lambda n, a: a(Z) + a(W), lambda n, a: a(Z) - 1j, lambda n, a: 2 * a(Z) / a(W)),
    *(lambda n, a: a(F) * a(C), lambda n, a: a(X) * a(C), lambda n, a: a(F) * 1j),
    *(lambda n, a: 1j / a(X), lambda n, a: a(np.arange(3)) - 2j, lambda n, a: a(C) * 3.0),
    *(lambda n, a: a(Z) ** 2, lambda n, a: a(Z) ** -1, lambda n, a: a(Z) ** (1 + 2j)),
    *(lambda n, a: a(Z) @ a(W), lambda n, a: a(X) @ a(Z).T, lambda n, a: n.vdot(a(Z), a(Z))),
    *(lambda n, a: n.einsum("ij,j->i", a(Z), a(W)), lambda n, a: n.tensordot(a(Z), a(W), 1)),
    *(lambda n, a: n.abs(a(Z)), lambda n, a: n.angle(a(Z)), lambda n, a: n.angle(a(X), deg=True)),
    *(lambda n, a: n.exp(a(Z)), lambda n, a: n.log(a(Z)), lambda n, a: n.sqrt(a(Z))),
    *(lambda n, a: n.sin(a(Z)), lambda n, a: n.tanh(a(Z)), lambda n, a: n.log10(a(C))),
    *(lambda n, a: n.sign(a(Z)), lambda n, a: n.conj(a(Z)).imag, lambda n, a: n.real(a(X))),
    *(lambda n, a: a(Z) == a(Z.conj()), lambda n, a: n.isnan(a(Z)), lambda n, a: a(Z) != 0),
    *(lambda n, a: a(Z).sum(0), lambda n, a: n.mean(a(Z)), lambda n, a: n.std(a(Z), 1)),
    *(lambda n, a: a(Z)[1, ::-1], lambda n, a: a(Z)[[1, 0]], lambda n, a: n.roll(a(Z), 1)),
    *(lambda n, a: n.where(a(X) > 0, a(Z), 1), lambda n, a: n.stack([a(W), a(W)], 1)),
    *(lambda n, a: n.concatenate([a(X), a(Z)]), lambda n, a: n.linalg.norm(a(Z), axis=1)),
    *(lambda n, a: n.full((2,), 1j, dtype="complex64"), lambda n, a: n.zeros_like(a(Z))),
    *(lambda n, a: n.outer(a(W), a(W)), lambda n, a: n.isclose(a(Z), a(Z) + 1e-9)),
    lambda n, a: n.pad(a(W), (1, 2)),
)


def test_expressions() -> None:
    """Values, shapes and types, in one evaluation."""
    found = [expression(mnp, mnp.asarray) for expression in EXPRESSIONS]
    evaluate([part for y in found for part in flatten(y)[0]])
    for number, (expression, y) in enumerate(zip(EXPRESSIONS, found, strict=True)):
        expected = np.asarray(expression(np, np.asarray))
        assert y.numpy().dtype == expected.dtype and y.shape == expected.shape, number
        rtol = 1e-5 if y.dtype.name in ("f32", "c64") else 1e-12
        np.testing.assert_allclose(y.numpy(), expected, rtol, rtol, err_msg=str(number))


def test_as_python_sees_them() -> None:
    z = Tensor([1 + 2j, 3])  # pyright: ignore[reportAssignmentType]
    assert isinstance(z, ComplexTensor) and repr(z).endswith("[1.+2.j, 3.+0.j], dtype=complex64)")
    assert [complex(part) for part in z] == z.tolist() == [1 + 2j, 3]
    assert z.at[0].set(5j).at[1].add(1).tolist() == [5j, 4]
    assert isinstance(np.exp(z), ComplexTensor) and isinstance(C * mnp.ones(3), ComplexTensor)
    assert pickle.loads(pickle.dumps(z)).tolist() == z.tolist()
    assert mnp.iscomplexobj(z) and not mnp.iscomplexobj(z.real) and mnp.isreal(z).tolist()[1]
    assert mnp.nan_to_num(mnp.asarray([complex(np.nan, 1)])).tolist() == [1j]


def loss(z: Any) -> Any:
    spectrum = mnp.fft.fft(mnp.exp(z) * W / (z + 2j))
    found = (abs(spectrum) * mnp.arange(3)).sum() + mnp.fft.irfft(z @ z.conj().T)[0].sum()
    return found + (abs(z) * mnp.angle(z)).sum()


def test_gradients() -> None:
    """By both parts, as trees of two tensors; where both parts are as great, too."""
    z = Z.copy()
    z[0] = 1 + 1j, -2 + 2j, 0.5 - 0.5j
    found = modelcc.grad(loss)(z)
    assert isinstance(found, ComplexTensor)

    def of_parts(parts: Any) -> float:
        return float(loss(mnp.asarray(parts[0] + 1j * parts[1])))

    expected = differences(of_parts, np.stack([z.real, z.imag]))
    np.testing.assert_allclose(found.numpy(), expected[0] + 1j * expected[1], 1e-6, 1e-8)


def test_compiled() -> None:
    step = modelcc.jit(lambda z, turn: (z * turn, abs(z)))
    turned, sizes = step(Z, 1j)
    np.testing.assert_allclose(turned, Z * 1j)
    np.testing.assert_allclose(sizes, np.abs(Z))
    powers = modelcc.scan(lambda z, _: (z * W, z), mnp.asarray(W), mnp.arange(3))[1]
    np.testing.assert_allclose(powers, np.stack([W, W**2, W**3]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: mnp.floor(z), "no form for complex numbers: it asks for 'floor'"),
        (lambda z: z < 2, "complex numbers have no order"),
        (lambda z: mnp.ones(3) % z, "Mod needs float or integer operands"),
        (lambda z: z.astype("f32"), r"complex numbers as f32\n.*use .real"),
        (lambda z: mnp.linalg.inv(mnp.outer(z, z)), "complex numbers as f64"),
        (lambda z: mnp.linalg.norm(mnp.outer(z, z), 2), "complex numbers as f64"),
        (lambda z: modelcc.grad(lambda w: w.sum())(z), "a gradient is of one float"),
    ],
)
def test_refusals(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        call(mnp.asarray(W))
