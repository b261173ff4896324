"""The machine by what Linux says of it, beside what LLVM finds itself."""

from __future__ import annotations

import platform
import sys

import pytest

from modelcc.targets.base import TargetOptions
from modelcc.targets.native.host import processor_of
from modelcc.targets.native.linux_machine import linux_machine, processor_name
from modelcc.targets.native.toolchain import host_machine

X86_LINUX = sys.platform == "linux" and platform.machine() == "x86_64"


@pytest.mark.skipif(not X86_LINUX, reason="Linux names the features of x86-64 processors only")
def test_what_linux_says_is_what_llvm_finds() -> None:
    by_linux, by_llvm = linux_machine(), host_machine()
    assert by_linux.triple == by_llvm.triple
    assert by_linux.cpu in (by_llvm.cpu, "")
    found = {name for name in by_llvm.features if name.startswith("+")}
    assert {*by_linux.features} <= found
    assert by_linux.vector_bits == by_llvm.vector_bits
    models = [processor_of(TargetOptions(), machine)[1] for machine in (by_linux, by_llvm)]
    assert models[0] == models[1] or not by_linux.cpu


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "name"),
    [
        ("AuthenticAMD", 23, 1, "", "znver1"),
        ("AuthenticAMD", 23, 49, "", "znver2"),
        ("AuthenticAMD", 25, 33, "", "znver3"),
        ("AuthenticAMD", 25, 97, "", "znver4"),
        ("AuthenticAMD", 26, 2, "", "znver5"),
        ("GenuineIntel", 6, 63, "", "haswell"),
        ("GenuineIntel", 6, 85, "avx512f", "skylake-avx512"),
        ("GenuineIntel", 6, 85, "avx512f avx512_vnni", "cascadelake"),
        ("GenuineIntel", 6, 85, "avx512f avx512_vnni avx512_bf16", "cooperlake"),
        ("GenuineIntel", 6, 143, "", "sapphirerapids"),
        ("GenuineIntel", 6, 1, "", ""),
        ("SomeoneElse", 25, 97, "", ""),
    ],
)
def test_x86_processors_have_names(
    vendor: str, family: int, model: int, flags: str, name: str
) -> None:
    facts = {"vendor_id": vendor, "cpu family": str(family), "model": str(model), "flags": flags}
    assert processor_name(facts) == name


def test_so_do_those_of_arm() -> None:
    assert processor_name({"CPU implementer": "0x41", "CPU part": "0xd40"}) == "neoverse-v1"
    assert processor_name({"CPU implementer": "0x61", "CPU part": "0xd40"}) == ""
    assert processor_name({}) == ""
