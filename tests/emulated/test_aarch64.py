"""64-bit Arm code under an emulator: a share of what ``make targets`` runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from small_models import computed_gather, mlp

import modelcc
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.ir.op import Op
from modelcc.ops.catalog import MCC
from modelcc.options import Options
from modelcc.targets.base import BuildConfig, TargetOptions
from tests.emulated import aarch64_target as emulated
from tests.ops.test_native import check
from tests.packages import described

PACKAGE = Path(__file__).parent
EMULATED = pytest.mark.skipif(bool(emulated.missing()), reason=emulated.missing() or "all is here")
SHARE = [op for op in MCC.ops if op.__name__ in ("LeakyRelu", "NonZero", "Softmax")]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for folder in described(PACKAGE, tmp_path):
        monkeypatch.syspath_prepend(folder)
    return "aarch64"


@EMULATED
@pytest.mark.parametrize("op", SHARE, ids=lambda op: op.__name__)
def test_ops_agree_with_their_references(op: type[Op], installed: str) -> None:
    check(op, installed, {})


@EMULATED
def test_models_agree_with_onnxruntime(installed: str) -> None:
    x = np.random.default_rng(3).standard_normal((9, 6)).astype(np.float32)
    peer = onnxruntime.InferenceSession(mlp("batch").SerializeToString())
    (wanted,) = map(np.asarray, peer.run(None, {"x": x}))
    net = modelcc.compile(mlp("batch"), installed, threads=1, cache=None)
    np.testing.assert_allclose(net(x), wanted, rtol=1e-4, atol=1e-5)


@EMULATED
@pytest.mark.parametrize(
    ("cpu", "mnemonic"), [("", "saddlp"), ("dotprod", "sdot"), ("i8mm", "usdot")]
)
def test_products_of_bytes_use_what_there_is(cpu: str, mnemonic: str, installed: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (13, 64), np.uint8)
    w = rng.integers(-128, 128, (64, 48), np.int8)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (uint8[13, 64] x) => (int32[13, 48] y)'
        f" <int8[64, 48] w = {{{_listed(w)}}}> {{ y = MatMulInteger(x, w) }}"
    )
    net = modelcc.compile(model, installed, cpu=cpu, threads=1, cache=None)
    np.testing.assert_array_equal(net(x), x.astype(np.int64) @ w.astype(np.int64))
    options = Options(target=installed, cpu=cpu, threads=1)
    text = emit(model, None, "asm", target_of(options), options, BuildConfig()).contents.decode()
    assert f"\t{mnemonic}\t" in text


def _listed(values: np.ndarray) -> str:
    return ", ".join(map(str, values.ravel()))


@EMULATED
def test_why_a_run_has_ended_comes_back(installed: str) -> None:
    net = modelcc.compile(computed_gather(), installed, threads=1, cache=None)
    np.testing.assert_array_equal(net(np.array([3, 0], np.float32)).shape, (2, 3))
    with pytest.raises(modelcc.RunError, match=r"rows: .*100.* is outside of"):
        net(np.array([3, 99], np.float32))


def test_without_an_emulator_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "missing", lambda: "qemu-aarch64 is not installed")
    target = emulated.aarch64_target(TargetOptions())
    with pytest.raises(modelcc.ModelError, match=r"cannot run here(.|\n)*qemu-user"):
        target.load(None, 1)  # type: ignore[arg-type]
