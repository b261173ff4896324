"""Named processors: the same code wherever it is made; this machine's caches for itself."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from modelcc.ir.errors import ModelError
from modelcc.runtime.caches import SystemCache
from modelcc.targets.base import TargetOptions
from modelcc.targets.cpu.machine import NUMBERS, CpuModel, with_numbers
from modelcc.targets.cpu.processors import COMMON, PROCESSORS, processor_model
from modelcc.targets.native import host
from modelcc.targets.native.c_target import c_target
from modelcc.targets.native.host import BASELINES, cpu_model, machine_of, processor_of, with_caches
from modelcc.targets.native.machine import Machine, simd_bits, tuning_cpu

ZEN5 = Machine("x86_64-linux-gnu", "znver5", ("+sse", "+avx512f", "+fma"), 512)


_LISTED = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu="help")
"""


def processors_of_llvm(triple: str) -> set[str]:
    """LLVM prints its lists, and warns only of a name that it does not know."""
    command = [sys.executable, "-c", _LISTED, triple]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    processors, _, _ = listing.partition("Available features")
    return set(re.findall(r"^  (\S+)\s+- ", processors, re.MULTILINE))


def test_llvm_knows_the_processors() -> None:
    known = {arch: processors_of_llvm(f"{arch}-linux-gnu") for arch in ("x86_64", "aarch64")}
    assert {n for n, p in PROCESSORS.items() if n not in known[p.architecture]} == set()


@pytest.mark.parametrize("name", [n for n, p in PROCESSORS.items() if p.architecture == "x86_64"])
def test_a_named_processor_has_the_features_of_its_vectors(name: str) -> None:
    machine = machine_of(name, ZEN5)
    assert machine.vector_bits == simd_bits(machine.triple, ("+sse", *machine.features))
    assert machine.tuning == name
    model = cpu_model(machine, 3)
    assert model.vector_bits == machine.vector_bits
    assert (model.threads, model.fused) == (3, True)
    assert model.vector_registers == PROCESSORS[name].model.vector_registers


def test_models_of_names_do_not_depend_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*BASELINES, "znver3", "cascadelake")
    before = [processor_of(TargetOptions(cpu=name), ZEN5) for name in names]
    monkeypatch.setattr(host, "system_caches", lambda: (SystemCache(1, 1 << 10, 1),) * 3)
    other = Machine("x86_64-linux-gnu", "haswell", ("+avx",), 256)
    assert [processor_of(TargetOptions(cpu=name), other) for name in names] == before


def test_this_machine_has_the_caches_that_the_system_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = (SystemCache(1, 40 << 10, 2), SystemCache(2, 3 << 20, 2), SystemCache(3, 9 << 20, 6))
    monkeypatch.setattr(host, "system_caches", lambda: caches)
    _, model = processor_of(TargetOptions(), ZEN5)
    assert (model.l1_bytes, model.l2_bytes, model.l3_bytes) == (40 << 10, 3 << 20, 9 << 20)
    assert (model.l1_cores, model.l2_cores, model.l3_cores) == (2, 2, 6)
    assert model.l3_bandwidth == PROCESSORS["znver5"].model.l3_bandwidth


def test_a_model_may_have_fewer_vectors_than_instructions() -> None:
    right = cpu_model(ZEN5, 1)
    wrong = cpu_model(ZEN5, 1, [("vector_bits", 256), ("vector_registers", 16)])
    assert (wrong.lanes(32), wrong.vector_registers) == (8, 16)
    assert right == right.instruction_set == wrong.instruction_set


def test_two_caches_are_all_and_one_is_not_believed() -> None:
    model = CpuModel()
    two = with_caches(model, (SystemCache(1, 32 << 10, 1), SystemCache(2, 4 << 20, 4)))
    assert [level.name for level in two.levels] == ["L1", "L2", "memory"]
    assert with_caches(model, (SystemCache(3, 1 << 20, 1),)) == model


def test_unknown_processors_are_taken_for_common_ones() -> None:
    assert processor_model("future9", 512, True) == COMMON["x86-64-v4"]
    assert processor_model("future9", 256, True) == COMMON["x86-64-v3"]
    assert processor_model("future9", 128, False) == COMMON["x86-64-v2"]
    assert processor_model("future9", 128, True, arm=True) == COMMON["generic"]


def test_halved_instructions_are_whole_ones_on_narrower_vectors() -> None:
    wide, narrow = (processor_model("znver4", bits, True) for bits in (512, 256))
    assert (wide.loads, wide.fmas, narrow.loads, narrow.fmas) == (1, 1, 2, 2)
    assert wide.multiply_adds(32) == narrow.multiply_adds(32) == 16
    assert narrow.vector_registers == 16


def test_what_is_read_again_and_again_comes_from_where_it_fits() -> None:
    model = PROCESSORS["znver3"].model
    sizes = (16 << 10, 17 << 10, 300 << 10, 20 << 20)
    speeds = [model.bandwidth(size) for size in sizes]
    assert speeds == [64, model.l2_bandwidth, model.l3_bandwidth, model.memory_bandwidth]


def test_a_processor_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ModelError, match=r"unknown processor 'znver33'\n.*did you mean 'znver3'"):
        machine_of("znver33", ZEN5)
    with pytest.raises(ModelError, match="unknown processor 'neoverse-n1'"):
        machine_of("neoverse-n1", ZEN5)


def test_scheduling_follows_the_named_processor() -> None:
    named = Machine("aarch64-linux-gnu", "generic", (), 128, "neoverse-v1")
    assert tuning_cpu(named) == "neoverse-v1"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("l4_bytes", 1, "a machine has no 'l4_bytes'"),
        ("threads", 2, "a machine has no 'threads'"),
        ("fmas", 1.5, "fmas of a machine must be a whole number, not 1.5"),
        ("l2_bytes", 0, "l2_bytes of a machine must be a number of at least 1, not 0"),
        ("l3_bandwidth", -2.0, "must be a number of at least 0.01, not -2.0"),
    ],
)
def test_numbers_of_no_machine_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        with_numbers(CpuModel(), [(name, value)])


def test_numbers_take_the_place_of_fields() -> None:
    changed = with_numbers(CpuModel(), [("l2_bytes", 2.0**19), ("l3_bytes", 0), ("fmas", 1)])
    assert changed == CpuModel(l2_bytes=1 << 19, l3_bytes=0, fmas=1)
    assert {"l1_bytes", "memory_bandwidth", "fma_latency"} < set(NUMBERS)
    known = PROCESSORS["znver3"].model
    assert with_numbers(known, [("l2_bandwidth", 30.8)]).l2_bandwidth == 30.8


def test_c_compilers_are_told_a_level_that_they_know() -> None:
    assert c_target(TargetOptions(cpu="znver4")).arch == "x86-64-v4"
    assert c_target(TargetOptions(cpu="x86-64-v2")).arch == "x86-64-v2"
