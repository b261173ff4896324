"""What Linux and LLVM say of this processor."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from modelcc.artifact.manifest import MachineSpec
from modelcc.runtime import machine
from modelcc.runtime.errors import LoadError
from modelcc.runtime.machine import check_machine, linux_features, machine_identity
from modelcc.targets.native.host import BASELINES

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="asks Linux about an x86-64 processor",
)


def test_what_linux_says_llvm_finds() -> None:
    features = dict(llvm.get_host_cpu_features())
    assert not [name for name in linux_features() if not features.get(name, True)]


def test_levels_need_no_llvm() -> None:
    """Linux says as much as LLVM about the levels that code is compiled for."""
    features = dict(llvm.get_host_cpu_features())
    wanted = {flag[1:] for level in BASELINES.values() for flag in level.features}
    assert {n for n in wanted if features[n]} == wanted & linux_features()


def spec(*features: str) -> MachineSpec:
    return MachineSpec(triple="x86_64-unknown-linux-gnu", cpu="future9", features=features)


def test_features_that_linux_lists_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    check_machine(spec("+sse2", "-avx2048"))
    with pytest.raises(LoadError, match=r"Linux does not list avx2048 here; install llvmlite"):
        check_machine(spec("+sse2", "+avx2048"))


def test_elsewhere_llvm_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_CPU_INFO", tmp_path / "none")
    assert not linux_features()
    check_machine(spec("+sse2"))
    with pytest.raises(LoadError, match=r"compiled for future9, .* lacks avx2048"):
        check_machine(spec("+sse2", "+avx2048"))


def test_tiles_that_linux_refuses_are_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = tmp_path / "cpuinfo"
    flags.write_text("flags\t\t: sse2 amx_tile amx_bf16\n")
    monkeypatch.setattr("modelcc.runtime.machine._CPU_INFO", flags)
    monkeypatch.setattr("modelcc.runtime.machine.tiles_permitted", lambda: True)
    assert "amx-tile" in linux_features()
    allowed = machine_identity()
    monkeypatch.setattr("modelcc.runtime.machine.tiles_permitted", lambda: False)
    assert linux_features() == {"sse2"}
    assert machine_identity() != allowed
    with pytest.raises(LoadError, match=r"compiled for amx-tile, which .* does not let this"):
        check_machine(spec("+sse2", "+amx-tile"))
