"""The check of machine code names the bars that kernels miss; a product misses none."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from machines import chosen_options
from onnx import TensorProto, helper

from benchmarks.gpu.code import code_of, found, main
from modelcc.artifact.file import write_artifact
from modelcc.driver import compile_model
from modelcc.targets.cuda.tools import find_tool
from modelcc.targets.kernel_use import GroupUse

SASS = """
	.headerflags	@"EF_CUDA_SM90"
.text.one:
        /*0000*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;
        /*0010*/              @!P0 UTMALDG.2D [UR8], [UR4] ;
.text.two:
        /*0000*/                   HMMA.16816.F32 R4, R4, R8, RZ ;
"""


def test_bars_that_are_missed_are_named() -> None:
    texts = code_of(SASS)
    assert list(texts) == ["one", "two"]
    one = found(GroupUse("one", 128, 0, 0.5, 1e12, 128, 0, 0.5), texts["one"])
    assert (one.matrix, one.misses) == ("HGMMA", ())
    two = found(GroupUse("two", 128, 0, 0.5, 1e12, 200, 16, 0.25), texts["two"])
    assert two.matrix == "HMMA"
    assert [miss.split()[0] for miss in two.misses] == ["16", "occupancy", "HMMA"]


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_a_model_is_as_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = {"a": ("rows", 256), "b": (256, 512), "y": ("rows", 512)}
    a, b, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sides.items())
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "g", [a, b], [y])
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    words = ["--targets", "cuda:sm_80", "--precisions", "f32", "f16", "--batch", "512", "--all"]
    assert main([str(path), *words]) == 0
    said = capsys.readouterr().out
    assert "product f32 cuda:sm_80: 1 kernels; 0 miss a bar" in said
    assert "product f16 cuda:sm_80: 2 kernels, 1 by HMMA; 0 miss a bar" in said
    assert said.count("as planned") == 3
    options = chosen_options(target="cuda:sm_80", dims=(("rows", 512),))
    write_artifact(tmp_path / "made.mcc", compile_model(onnx.load(str(path)), options).artifact)
    assert main([str(tmp_path / "made.mcc")]) == 0
    assert capsys.readouterr().out == "made: 1 kernels; 0 miss a bar\n"
