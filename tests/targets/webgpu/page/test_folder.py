"""A page computes in a browser what the model means; what it cannot run is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shutil import which

import numpy as np
import onnx
import pytest
from browser import CHROMIUM, look_at_page, run_page
from onnx import TensorProto, helper, numpy_helper

from modelcc.emit.delivery import Delivery
from modelcc.emit.web import deliver_page
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.webgpu import wasm
from modelcc.targets.webgpu.target import webgpu_target

F32, I64, F64 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE
RANDOM = np.random.default_rng(7)
WEIGHTS = {
    "table": RANDOM.standard_normal((9, 8)).astype(np.float32),
    "w": RANDOM.standard_normal((8, 12)).astype(np.float32),
    "v": RANDOM.standard_normal((4, 3)).astype(np.float32),
    "four": np.array([4]),
    "b": RANDOM.standard_normal(12).astype(np.float32),
}


def model_of(nodes: list[onnx.NodeProto], rows: int | str, outputs: Mapping[str, int]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("ids", I64, [rows])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def words(rows: int | str = 6) -> bytes:
    """Rows of a table, a layer, softmax, sorted numbers; a sum of 64 bits and where the greatest
    are, which is the host's work."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=-1),
        helper.make_node("Cast", ["sum"], ["wide"], to=F64),
        helper.make_node("Exp", ["wide"], ["powers"]),
        helper.make_node("ReduceSum", ["powers"], ["total"], keepdims=0),
        helper.make_node("TopK", ["sum", "four"], ["best", "places"]),
        helper.make_node("MatMul", ["best", "v"], ["mixed"]),
        helper.make_node("Hardmax", ["sum"], ["greatest"], axis=-1),
        helper.make_node("Greater", ["sum", "greatest"], ["more"]),
    ]
    outputs = {"y": F32, "total": F64, "mixed": F32, "more": TensorProto.BOOL}
    return model_of(nodes, rows, outputs)


def page(tmp_path: Path, model: bytes) -> Delivery:
    path = tmp_path / "words.onnx"
    path.write_bytes(model)
    target, options = webgpu_target(TargetOptions()), Options(target="webgpu")
    return deliver_page(path, None, "a <b> page", target, options, BuildConfig())


def written(tmp_path: Path, model: bytes) -> Path:
    for file in page(tmp_path, model).files:
        (tmp_path / file.name).write_bytes(file.contents)
    return tmp_path


def wanted(ids: Array) -> dict[str, Array]:
    total = WEIGHTS["table"][ids] @ WEIGHTS["w"] + WEIGHTS["b"]
    powers = np.exp(total.astype(np.float64))
    exp = np.exp(total - total.max(-1, keepdims=True))
    return {
        "y": exp / exp.sum(-1, keepdims=True),
        "total": powers.sum(),
        "mixed": -np.sort(-total, -1)[:, :4] @ WEIGHTS["v"],
        "more": total > (total == total.max(-1, keepdims=True)),
    }


needs_linker = pytest.mark.skipif(
    not any(map(which, wasm.LINKERS)), reason="there is no wasm-ld (Debian: lld-22)"
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@needs_linker
def test_a_folder_has_all_that_a_page_loads(tmp_path: Path) -> None:
    files = {file.name: bytes(file.contents) for file in page(tmp_path, words()).files}
    assert set(files) == {
        "index.html", "page.js", "modelcc.js", "model.json", "kernels.wgsl", "weights.bin",
        "host.wasm",
    }  # fmt: skip
    assert "<title>a &lt;b&gt; page</title>" in files["index.html"].decode()
    model = json.loads(files["model.json"])
    assert files["kernels.wgsl"].decode().count("// ---- ") == len(model["kernels"])
    assert len(files["weights.bin"]) == sum(-(-size // 4) * 4 for _, _, size, _ in model["weights"])
    (check,) = model["checks"]
    assert "index within -9 ... 8" in check["where"]
    kinds = [next(k for k in ("kernel", "host", "down", "up") if k in s) for s in model["steps"]]
    assert kinds.index("down") < kinds.index("host") < kinds.index("up")
    assert files["host.wasm"][:4] == b"\0asm"


@needs_linker
@needs_browser
def test_a_browser_computes_what_the_model_means(tmp_path: Path) -> None:
    folder, ids = written(tmp_path, words()), np.array([0, 8, 3, -1, 5, 5])
    found = run_page(folder, [ids], 120)
    for name, array in wanted(ids).items():
        got = np.frombuffer(found[name], array.dtype).reshape(array.shape)
        np.testing.assert_allclose(got, array, rtol=3e-5, atol=1e-6)
    with pytest.raises(
        RuntimeError, match=r"ModelError: Index 9 is out of range: .*within -9 \.\.\. 8"
    ):
        run_page(folder, [np.array([0, 8, 3, 9, 5, 5])], 120)
    (folder / "weights.bin").write_bytes(b"1234")
    with pytest.raises(RuntimeError, match=r"ModelError: weights.bin is too short"):
        run_page(folder, [ids], 120)


@needs_linker
@needs_browser
def test_a_page_shows_what_it_computes_and_what_is_wrong(tmp_path: Path) -> None:
    """The largest of a line, numbers that were left out, and an index that is out of range."""
    folder = written(tmp_path, words())
    text = look_at_page(folder, "0, 8, 3, -1", 120)
    assert "a <b> page" in text and "4 of 6 numbers: the others are 0" in text
    (last,) = wanted(np.array([0]))["y"]
    best = int(last.argmax())
    assert f"class\tvalue\tsoftmax\t\n{best}\t{last[best]:.5f}" in text
    text = look_at_page(folder, "0, 8, 3, 9, 5, 5", 120)
    assert "Index 9 is out of range" in text
    text = look_at_page(folder, "1, 2, 3, 4, 5, 6, 7", 120)
    assert "ids: 7 numbers for 6" in text


def test_without_a_linker_the_kernels_of_the_host_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wasm, "which", lambda name: None)
    with pytest.raises(ModelError, match=r"stay on the host.*Exp.*\n.*install LLVM's linker"):
        page(tmp_path, words())


def test_sizes_have_to_be_given(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a page is for fixed sizes(.|\n)*--dim n=N"):
        page(tmp_path, words("n"))


def test_steps_that_hang_on_data_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["ids"], ["y"])]
    with pytest.raises(ModelError, match="runs the same steps every time"):
        page(tmp_path, model_of(nodes, 6, {"y": I64}))
