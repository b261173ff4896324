"""Complex tensors and Fourier transforms give what PyTorch gives, by torch.export and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.torch.comparison import array_of, compiled, torch

pytestmark = pytest.mark.filterwarnings("ignore")

_RANDOM = torch.Generator().manual_seed(1)
X, Y = torch.randn(2, 3, 8, generator=_RANDOM)
C = torch.randn(3, 8, dtype=torch.complex64, generator=_RANDOM)
D = torch.randn(3, 8, dtype=torch.complex128, generator=_RANDOM)
WINDOW = torch.hann_window(8)
fft, irfft, rfft = torch.fft, torch.fft.irfft, torch.fft.rfft

CASES: dict[str, tuple[Any, ...]] = {
    "hermitian": (lambda x: fft.hfft(fft.ihfft(x)), X),
    "orthonormal, cut and padded": (lambda x: fft.fft2(x, s=(4, 6), norm="ortho"), X),
    "both ways": (lambda x: (fft.rfftn(x), irfft(rfft(x)), fft.irfftn(rfft(x, n=9), s=(3, 9))), X),
    "forward division": (lambda d: (fft.ifftn(d, norm="forward"), fft.fft(d, dim=0)), D),
    "a prime length": (lambda x: fft.fft(x, n=23), X),
    "windows": (lambda x: torch.stft(x, 8, window=WINDOW, return_complex=True), X.repeat(1, 4)),
    "and back": (lambda c: torch.istft(c, 8, window=WINDOW),
                 torch.stft(X.reshape(-1), 8, window=WINDOW, return_complex=True)),
    "parts": (lambda c: (c.abs(), c.angle(), c.real, c.conj().imag, torch.view_as_real(c)), C),
    "made": (lambda x, y: (torch.complex(x, y), torch.polar(x, y),
                           torch.view_as_complex(torch.stack([x, y], -1))), X, Y),
    "functions": (lambda c: (c.exp(), c.log(), c.sqrt(), c.rsqrt(), c.sin(), c.cosh(), c.sinh(),
                             c.tan(), c.tanh(), c.log2(), c.expm1(), c.log1p(), c.sgn(),
                             torch.sigmoid(c), c.reciprocal(), c**2, c ** (0.3 + 1j),
                             torch.nn.functional.silu(c)), C),
    "arithmetic": (lambda c, d, x: (c + d, c - x, 1 - c, x / d, 2j * c, x == c, c != c,
                                    torch.add(c, x, alpha=2j)), C, D, X),
    "halves": (lambda x, c: (x.chalf(), torch.view_as_real(c.chalf()), c.chalf().cfloat() * x,
                             torch.complex(x.half(), x.half()).T), X, C),
    "sums": (lambda c: (c.sum(), c.mean(1, keepdim=True), c.var(), c.cumsum(1), c.norm(),
                        torch.isfinite(c), torch.isnan(c)), C),
    "products": (lambda c, x: (c @ c.mH, x.to(c.dtype) @ c.mT, torch.vdot(c[0], c[1]),
                               torch.addmm(c[:, :3], c, c.mT, beta=2, alpha=1j),
                               torch.einsum("ij,kj->ik", c, c),
                               torch.nn.functional.linear(c, c, c[:, 0])), C, X),
    "moves": (lambda c: (c.flip(0), c.roll(1, 1), c[[0, 2]], c[:, ::2], c.diag(), c.tril(),
                         torch.stack([c, c]), torch.cat([c, c.abs()]), c.to(torch.complex128),
                         c.masked_fill(c.abs() > 1, 2.0), torch.where(c.real > 0, c, 1j),
                         torch.nn.functional.pad(c, (1, 2), value=1.5),
                         torch.full((2, 2), 2.0, dtype=c.dtype)), C),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_torch_computes(case: str) -> None:
    function, *xs = CASES[case]
    found, wanted = compiled(function, xs)(*map(array_of, xs)), function(*xs)
    leaves = torch.utils._pytree.tree_leaves
    for ours, theirs in zip(leaves(found), leaves(wanted), strict=True):
        expected = array_of(theirs)
        assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=2e-5)


def test_a_named_length() -> None:
    """The length of a transform need not be known before a run."""
    named = [{1: torch.export.Dim("n", min=2, max=64)}]
    net = compiled(lambda x: rfft(x, norm="ortho").abs(), [X], named)
    for x in (X, torch.cat([X, Y], 1)):
        np.testing.assert_allclose(
            net(x.numpy()), rfft(x, norm="ortho").abs(), rtol=1e-4, atol=1e-5
        )


GRADIENTS: dict[str, Any] = {
    "spectrum": (lambda x: irfft(rfft(x) * 2).exp(), X),
    "magnitude": (lambda c: fft.fft(c * c).abs(), C),
    "transposed": (lambda c: (c @ c.mH * c.exp()[:, :3]).T, C),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_compiled_with_gradients(case: str) -> None:
    function, x = GRADIENTS[case]
    x = x.clone().requires_grad_()
    torch._dynamo.reset()
    found, wanted = torch.compile(function, backend="modelcc")(x), function(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    ours, theirs = (torch.autograd.grad(y.abs().sum(), x) for y in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_what_pytorch_runs_gives_and_takes_complex_tensors() -> None:
    """Arcsines run in PyTorch; conjugate views come and go."""
    torch._dynamo.reset()

    def function(c: Any) -> Any:
        return torch.asin(c.conj() * 2).conj().T + 1

    found = torch.compile(function, backend="modelcc")(C.conj())
    torch.testing.assert_close(found, function(C.conj()), rtol=1e-4, atol=1e-5)
