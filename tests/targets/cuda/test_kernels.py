"""Kernels for NVIDIA's GPUs: what LLVM and ptxas make of them, without a GPU."""

from __future__ import annotations

import re
from math import prod

import pytest
from group_kernels import BY_NAME, FIRST
from op_kernels import graph_of
from scatters import Updates

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.runtime.streams.cuda_code import ARCHITECTURES
from modelcc.targets.cuda.chips import CHIPS, Chip, chip_of, find_chip
from modelcc.targets.cuda.cubin import compiled_kernels
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import (
    CudaToolError,
    assemble,
    disassemble,
    find_tool,
    read_uses,
)
from modelcc.targets.gpu.kernel_uses import kernel_use
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.kernel_use import CompiledKernel
from modelcc.targets.llvm.groups import shared_bytes

assembling = pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
disassembling = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")

HALVES = """func @halves(%x: f32[256*n], %y: mut f32[128*n]; n) {
  grid g in 0 .. n {
    shared %part: f32[256]
    thread w in 0 .. 2 {
      thread t in 0 .. 32 {
        store %part[128*w + 4*t] = load %x[256*g + 128*w + 4*t] x4
        barrier
        if predicate(w == 0) {
          store %y[128*g + 4*t] = add(load %part[4*t] x4, load %part[128 + 4*t] x4)
        }
      }
    }
  }
}"""

LARGE = """func @large(%x: f32[n], %y: mut f32[n]; n) {
  grid g in 0 .. n {
    shared %a: f32[8192]
    shared %b: f32[8192]
    thread t in 0 .. 32 {
      store %a[t] = load %x[g]
      store %b[8191 - t] = load %x[g]
      barrier
      store %y[g] = add(load %a[31 - t], load %b[8160 + t])
    }
  }
}"""


def ptx(text: str, name: str = "sm_80") -> str:
    chip = find_chip(name)
    return ptx_text(llvm_text([parse_function(text)], chip), chip)


def test_groups_threads_and_vectors() -> None:
    text = ptx(HALVES)
    assert ".visible .entry halves(" in text
    assert ".reqntid 32, 2, 1" in text
    for word in ("%ctaid.x", "%tid.x", "%tid.y", ".shared .align 64", "ld.shared.v4", "bar.sync"):
        assert word in text, word
    assert re.search(r"ld\.global(\.nc)?\.v4", text)
    assert "st.global.v4" in text


def test_much_shared_memory_is_given_by_who_launches_the_kernel() -> None:
    text = ptx(LARGE)
    assert ".extern .shared .align 1024 .b8 large_shared[]" in text
    assert ".global .align 4 .u32 large_shared_bytes = 65536;" in text
    if find_tool("ptxas"):
        assert assemble(text, find_chip("sm_80")).uses["large"].shared < 1024


def test_a_check_notes_its_index_behind_the_buffers() -> None:
    text = """func @f(%i: i64[n], %y: mut f32[n]; n) {
      grid g in 0 .. n {
        thread t in 0 .. 1 {
          let %at = load %i[g]
          check %at below [n]
          store %y[g] = f32(1.0)
        }
      }
    }"""
    llvm = llvm_text([parse_function(text)], find_chip("sm_80"))
    assert re.search(r"@f\(ptr addrspace\(1\).* %i, .* %y, .* %faults, i64 %n\)", llvm)
    assert "trap" not in ptx(text)


REFUSED = {
    "grid g in 0 .. 2 { thread t in 0 .. 1025 { } }": "a group has 1024 threads, not 1025",
    "grid g in 0 .. 2 { shared %s: f32[50000] thread t in 0 .. 4 { } }": "shares 200000 bytes",
    "for i in 0 .. 4 { store %y[i] = f32(0.0) }": "has kernels only, but @f no grid",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_no_gpu_runs_is_refused(body: str) -> None:
    with pytest.raises((ModelError, NotImplementedError), match=REFUSED[body]):
        ptx(f"func @f(%y: mut f32[8]) {{ {body} }}")


def test_unknown_architectures_are_named() -> None:
    with pytest.raises(ModelError, match="'sm_12' is no architecture") as caught:
        find_chip("sm_12")
    assert "sm_90a" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("capability", "chip"),
    [
        *(((7, 5), None), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 9), "sm_89")),
        *(((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 3), "sm_90"), ((12, 1), "sm_120")),
    ],
)
def test_what_a_gpu_is_compiled_for(capability: tuple[int, int], chip: str | None) -> None:
    """Code for one architecture alone is for no other one."""
    found = chip_of(*capability)
    assert (None if found is None else found.name) == chip
    assert tuple(CHIPS) == ARCHITECTURES


@assembling
def test_shared_and_registers_make_the_occupancy() -> None:
    function, chip = parse_function(HALVES), find_chip("sm_80")
    uses = assemble(ptx(HALVES), chip).uses
    assert uses["halves"].shared == 1024
    assert uses["halves"].spilled == 0
    use = kernel_use(function, chip.gpu, CompiledKernel(uses["halves"].registers, 0))
    assert (use.threads, use.shared, use.planned, use.occupancy) == (64, 1024, 1.0, 1.0)
    crowded = kernel_use(function, chip.gpu, CompiledKernel(65, 0))  # in eights: 72
    assert (crowded.planned, crowded.occupancy) == (1.0, 14 * 64 / 2048)


BUSY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry busy(.param .u64 p) .maxnreg 24 {{
.reg .f32 %f<64>;
.reg .b64 %r<2>;
ld.param.u64 %r1, [p];
{}
ret;
}}
"""


@assembling
def test_machine_code_says_what_ptxas_says() -> None:
    loads = (f"ld.volatile.global.f32 %f{i}, [%r1+{4 * i}];" for i in range(64))
    stores = (f"st.volatile.global.f32 [%r1+{4 * i}], %f{63 - i};" for i in range(64))
    text = BUSY.format("\n".join((*loads, *stores)))
    for code in (text, ptx(HALVES)):
        cubin = assemble(code, find_chip("sm_80"))
        said = {name: CompiledKernel(u.registers, u.stack) for name, u in cubin.uses.items()}
        assert compiled_kernels(cubin.code) == said
    assert compiled_kernels(assemble(text, find_chip("sm_80")).code)["busy"].local > 0
    assert compiled_kernels(text.encode()) == {}


def test_what_ptxas_says() -> None:
    words = """ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 3072 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'b' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]"""
    uses = read_uses(words)
    assert (uses["a"].registers, uses["a"].shared, uses["a"].spilled) == (255, 3072, 20)
    assert (uses["b"].registers, uses["b"].shared, uses["b"].spilled) == (8, 0, 0)


@assembling
@disassembling
def test_machine_code_is_shown() -> None:
    chip = find_chip("sm_90a")
    text = disassemble(assemble(ptx(HALVES, "sm_90a"), chip).code)
    assert "LDG.E.128" in text
    assert "BAR.SYNC" in text


@assembling
def test_what_ptxas_refuses_is_told() -> None:
    with pytest.raises(CudaToolError, match="ptxas refuses the kernels"):
        assemble("nonsense", find_chip("sm_80"))


NO_SCHEDULE = "no schedule for Scatter"


def functions_of(op: Op, sample: Sample, chip: Chip) -> list[Function]:
    """As they are scheduled for machines that have the architecture."""
    graph = graph_of(op, sample, arrays(op, sample), False)
    try:
        return list(schedule_groups(lower_graph(graph), None, chip.gpu).functions)
    except ModelError as error:
        assert NO_SCHEDULE in str(error)
        return []


@assembling
@pytest.mark.share(16, "op")
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("op", "sample"), FIRST)
def test_every_op_is_assembled_without_spills(op: Op, sample: Sample, name: str) -> None:
    chip = CHIPS[name]
    functions = functions_of(op, sample, chip)
    if functions:
        made = assemble(ptx_text(llvm_text(functions, chip), chip), chip)
        spilled = {kernel: use.spilled for kernel, use in made.uses.items() if use.spilled}
        assert not spilled
        assert len(made.uses) == len(functions)


MANY = {
    "places": Updates((1_000_000,), (1_000_000,), 0),
    "rows": Updates((100_000, 64), (1_000_000, 1)),
    "an embedding": Updates((50_000, 768), (4096, 1), dtype="bf16"),
    "named rows": Updates((100_000, 64), (9, 1), named=True),
    "lists": Updates((8, 1000), (8, 100_000), 1, "max"),
}


@assembling
@pytest.mark.parametrize("name", MANY)
def test_many_updates_take_the_registers_that_are_planned(name: str) -> None:
    chip = CHIPS["sm_90a"]
    function = schedule_groups(MANY[name].program(), None, chip.gpu).functions[-1]
    assert any(isinstance(s, Barrier) for s in statements(function.body))
    text = ptx_text(llvm_text([function], chip), chip)
    if name in ("rows", "an embedding"):
        assert set(re.findall(r"st\.global\.\S+", text)) == {"st.global.v4.b32"}
    (use,) = assemble(text, chip).uses.values()
    assert not use.spilled
    threads = launch_extents(function)[1]
    count, shared = prod(n for n in threads if isinstance(n, int)), shared_bytes(function)
    assert chip.gpu.groups_at_once(count, use.registers, shared) > 0


@assembling
def test_what_would_spill_takes_more_registers() -> None:
    """Divisions of 64 bits are calls, around which ptxas keeps to 80 registers by itself."""
    chip = find_chip("sm_80")
    op, sample = BY_NAME["Mod-0"].values
    assert isinstance(op, Op) and isinstance(sample, Sample)
    text = ptx_text(llvm_text(functions_of(op, sample, chip), chip), chip)
    (use,) = assemble(text, chip).uses.values()
    assert not use.spilled
    (bound,) = assemble(text.replace("\n.reqntid", "\n.maxnreg 80\n.reqntid"), chip).uses.values()
    assert bound.spilled
