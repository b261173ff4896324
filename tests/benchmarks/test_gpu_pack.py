"""What is taken to a machine with a GPU and what comes back, as files."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.gpu import there
from benchmarks.gpu.cases import differences
from benchmarks.gpu.pack import pack, unpack
from benchmarks.gpu.profiles import Kernel, Profile, Profiles, main, read


def test_what_was_prepared_goes_along_with_packages(tmp_path: Path) -> None:
    """Models that were compiled here, and files of others, stay."""
    folder, wheel = tmp_path / "gpu", tmp_path / "some.whl"
    folder.mkdir()
    names = {"product_8x8_f32.mcc", "a.npz", "a.seeded.onnx", "a_f16.seeded.onnx"}
    for name in (*names, "a_f16_x32.mcc", "results.json"):
        (folder / name).write_text(name)
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("some/__init__.py", "HERE = 1\n")
    assert pack(folder, tmp_path / "p.tar.xz", [wheel]) == (tmp_path / "p.tar.xz").stat().st_size
    site = unpack(tmp_path / "p.tar.xz", tmp_path / "there")
    found = {path.name for path in (tmp_path / "there").iterdir()}
    assert found == names | {site.name}
    assert (site / "some" / "__init__.py").read_text() == "HERE = 1\n"
    assert (tmp_path / "there" / "a.npz").read_text() == "a.npz"


def test_tools_packages_and_caches_are_found(tmp_path: Path) -> None:
    tools = tmp_path / "cuda-13.0" / "bin"
    tools.mkdir(parents=True)
    (tools / "ptxas").touch()
    (tmp_path / "cuda-12" / "bin").mkdir(parents=True)
    assert there.tool_folders([f"{tmp_path}/cuda*/bin"]) == [str(tools)]
    (tmp_path / "site").mkdir()
    known = there.environment({"PATH": "/bin", "HOME": "/x"}, tmp_path, tmp_path / "site")
    first, *rest = known["PYTHONPATH"].split(os.pathsep)
    assert first == str(tmp_path / "site") and rest == [str(there.TREE / "src"), str(there.TREE)]
    assert known["PATH"].startswith("/bin") and known["HOME"] == "/x"
    (tmp_path / "inductor").mkdir()
    (tmp_path / "inductor" / "kernel.py").write_text("1")
    assert known["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
    there.keep(tmp_path, tmp_path / there.CACHES)
    with tarfile.open(tmp_path / there.CACHES) as tar:
        assert tar.getnames() == ["inductor", "inductor/kernel.py"]


def test_one_command_unpacks_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is prepared in this pack, so that nothing is right: what is told is the machine."""
    (tmp_path / "gpu").mkdir()
    pack(tmp_path / "gpu", tmp_path / "p.tar.xz")
    out, here = tmp_path / "out", tmp_path / "held"
    monkeypatch.setattr(sys, "argv", ["there"])
    words = [str(tmp_path / "p.tar.xz"), str(out), "--folder", str(here)]
    code = there.main([*words, "--phase", "check", "--no-operators", "--seconds", "5"])
    said = capfd.readouterr().out
    assert "Python 3." in said.splitlines()[1]
    assert code in (1, 2), "2 without the package of NVIDIA's driver"
    assert code == 2 or (out / "results.md").exists()


ONE = Profile("m x1", 1e-3, 5e-5, 1e-6, (Kernel("k0", 2, 4e-5, 1e-5, 8000, 4000, "MatMul#0"),))
FAST = Profile("m x1", 1e-3, 4e-5, 1e-6, (Kernel("k0", 2, 2e-5, 1e-5, 8000, 4000, "MatMul#0"),))


def test_profiles_are_kept_shown_and_compared(tmp_path: Path) -> None:
    before, now = tmp_path / "before.json.gz", tmp_path / "now.json.gz"
    Profiles(before).add(ONE)
    kept = Profiles(now, tmp_path / "copy.json.gz")
    kept.add(FAST)
    kept.add(Profile("other", None, None, 0.0, ()))
    assert read(now) == read(tmp_path / "copy.json.gz") == Profiles(now).found == kept.found
    assert read(before) == {"m x1": ONE}
    text = io.StringIO()
    words = [str(now), "--before", str(before), "--name", "m x"]
    assert main(words, Console(file=text, width=160)) == 0
    cells = [[c.strip() for c in line.split("│")] for line in text.getvalue().splitlines()]
    rows = {row[1]: row[2:-1] for row in cells if len(row) > 3}
    assert rows["m x1"] == ["1e-03", "40.0", "20.0", "10.0", "50%", "1.0", "x1.25", "x2.00"]
    assert rows["k0"][:5] == ["2", "20.0", "10.0", "10.0", "50%"]
    assert rows["k0"][-2:] == ["MatMul#0", "x2.00"]
    assert rows["other"][:3] == ["", "", "0.0"]


def test_the_kernels_that_lose_most_come_first() -> None:
    kernels = [Kernel(f"k{n}", 1, s, 1e-5, 0, 0) for n, s in enumerate((2e-5, 9e-5, 5e-5))]
    profile = Profile("m", None, None, 0.0, tuple(kernels))
    assert [kernel.function for kernel in profile.worst(2)] == ["k1", "k2"]
    assert [line.split()[-1] for line in profile.lines(2)] == ["us", "k1", "k2"]


def test_wrong_numbers_are_told_with_their_places() -> None:
    wanted = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = wanted.copy()
    assert differences(found, wanted, 1e-3) == "as wanted"
    found[1, 2], found[2, 0] = 7.5, np.nan
    said = differences(found, wanted, 1e-3)
    assert said.startswith("2 of 12 differ, from (1, 2) to (2, 0); 7.5 for 6, nan for 8; 1 are not")
