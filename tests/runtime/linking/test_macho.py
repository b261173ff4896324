"""What macOS loads: names of Mach-O objects, and functions of a host that are such objects."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from metal_kernels import install
from onnx import helper
from small_models import model

from modelcc.driver import NOWHERE, pipeline
from modelcc.pipeline import run_stages
from modelcc.runtime import loader, machine, pool
from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking import llvm_linker
from modelcc.runtime.linking.macho import PROCESSORS, NotMachError, read_mach_object
from modelcc.runtime.loader import NativeCode
from modelcc.runtime.opening import session_of
from modelcc.targets.metal.target import metal_target
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import compile_llvm
from tests.machines import chosen_options, chosen_target_options

TEXT = """
declare ptr @memcpy(ptr, ptr, i64)
@table = constant [2 x i64] [i64 3, i64 1]
define void @f(ptr %x, ptr %y, i64 %n) {
  %a = call ptr @memcpy(ptr %y, ptr %x, i64 %n)
  call void @local()
  ret void
}
define internal void @local() noinline { ret void }
define hidden void @inside() { ret void }
"""
TRIPLES = {name: f"{name}-apple-darwin24.6.0" for name in PROCESSORS}


@pytest.mark.parametrize("name", TRIPLES)
def test_names_are_those_that_llvms_tool_finds(name: str, tmp_path: Path) -> None:
    contents = compile_llvm(TEXT, Machine(TRIPLES[name]))
    found = read_mach_object(contents)
    assert found.processor == PROCESSORS[name]
    assert (set(found.defined), found.undefined) == ({"f", "table"}, ("memcpy",))
    if tool := shutil.which("llvm-nm"):
        (tmp_path / "f.o").write_bytes(contents)
        command = [tool, "--extern-only", "--format=just-symbols", str(tmp_path / "f.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == {"_f", "_table", "_memcpy", "_inside"}


def test_what_is_no_such_object_is_told() -> None:
    contents = compile_llvm(TEXT, Machine(TRIPLES["aarch64"]))
    for damaged in (contents[:40], contents[:300], contents[:12] + b"\2" + contents[13:]):
        with pytest.raises(NotMachError, match="cut off or damaged"):
            read_mach_object(damaged)
    for other in (b"", b"\x7fELF" + bytes(60)):
        with pytest.raises(NotMachError, match="not a 64-bit Mach-O object"):
            read_mach_object(other)


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes itself to be on macOS.  There LLVM puts a line before names of C, in
    objects as in what it looks up; here it is put there for it."""
    own = llvm_linker.link_objects

    def link(
        objects: Sequence[bytes], symbols: Mapping[str, int], exports: Sequence[str]
    ) -> NativeCode:
        given = {f"_{name}": address for name, address in symbols.items()}
        code = own(objects, given, [f"_{name}" for name in exports])
        return NativeCode(code, {name: code.address(f"_{name}") for name in exports})

    for module in (loader, machine):
        monkeypatch.setattr(module, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(llvm_linker, "link_objects", link)
    monkeypatch.delattr(pool.os, "sched_getaffinity")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the object is for x86-64")
def test_a_host_function_runs_from_such_an_object(
    mac: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doubles between two kernels."""
    install(monkeypatch)
    types = {"d": 11, "f": 1}
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Cast", ["h"], ["d"], to=types["d"]),
        helper.make_node("Exp", ["d"], ["e"]),
        helper.make_node("Cast", ["e"], ["f"], to=types["f"]),
        helper.make_node("ReduceSum", ["f"], ["y"]),
    ]
    target = metal_target(chosen_target_options())
    host = replace(target.host, machine=Machine(TRIPLES["x86_64"]))
    stages = pipeline(replace(target, host=host), chosen_options(target="metal"), NOWHERE)
    artifact = run_stages(stages, model(nodes, {"x": ("n", 6)}, {"y": (1, 1)}, {}))
    x = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)
    wanted = np.exp(np.maximum(x, 0)).sum(keepdims=True)
    np.testing.assert_allclose(session_of(artifact)(x), wanted, rtol=1e-6)


def test_other_systems_objects_are_refused(mac: None) -> None:
    for triple, why in (
        (
            "x86_64-unknown-linux-gnu",
            "it is not a 64-bit Mach-O object .*compile the model on this",
        ),
        (TRIPLES["aarch64" if platform.machine() == "x86_64" else "x86_64"], "it is made for"),
    ):
        with pytest.raises(LoadError, match=f"cannot load object 0: {why}"):
            loader.load_objects([compile_llvm(TEXT, Machine(triple))])


def test_models_for_processors_run_on_linux_only(mac: None) -> None:
    stages = pipeline(metal_target(chosen_target_options()).host, chosen_options(), NOWHERE)
    artifact = run_stages(stages, model([helper.make_node("Relu", ["x"], ["y"])], {"x": (2,)},
                                        {"y": (2,)}, {}))  # fmt: skip
    with pytest.raises(LoadError, match="this is macOS; compile the model for metal"):
        session_of(artifact)


def test_macos_has_another_name_for_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert machine.architecture() == "aarch64"


def test_cores_of_a_system_that_does_not_tell_which(mac: None) -> None:
    assert pool.available_cores() >= 1
