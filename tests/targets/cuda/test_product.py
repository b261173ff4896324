"""Products of f32 as machine code, without a GPU: little but FFMA in the loop, as many groups at
once as planned."""

from __future__ import annotations

import pytest
from cuda_products import kernel_of, product
from machine_code import loops_of

from modelcc.ir.loop import Function
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.group_schedule import GroupProduct
from modelcc.targets.cuda import tools
from modelcc.targets.cuda.chips import Chip, find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import (
    Cubin,
    CudaToolError,
    KernelResources,
    assemble,
    disassemble,
    find_tool,
)
from modelcc.targets.gpu.lower import lower_groups, schedule_groups_kernel
from modelcc.targets.llvm.groups import shared_bytes


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.parametrize("right", ["l, j", "j, l"], ids=["rows", "columns"])
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_threads_multiply_most_of_the_time(name: str, right: str) -> None:
    """Sixteen rows by eight columns of a thread come by six loads for each term, and results go by
    vectors."""
    sides = "%a: f32[4096, 4096], %b: f32[4096, 4096], %c: f32[4096]"
    program = parse_tensor_program(
        f"""program @p({sides}) -> (%y) {{
          kernel @k({sides}) -> (%y: f32[4096, 4096]) {{
            %p: f32[4096, 4096] = [i < 4096, j < 4096] sum[l < 4096] %a[i, l] * %b[{right}]
            %y: f32[4096, 4096] = [i < 4096, j < 4096] max(%p[i, j] + %c[j], 0.0) }} }}""",
        {},
    )
    chip, kernel = find_chip(name), kernel_of(program)
    made = schedule_groups_kernel(kernel.kernel, "k", chip.gpu)
    function, schedule = made.function, made.schedule
    assert isinstance(function, Function) and isinstance(schedule, GroupProduct)
    assert (schedule.thread_rows, schedule.thread_columns) == (16, 8) and schedule.interleaved
    code = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    use = code.uses["k"]
    assert use.spilled == 0
    at_once = chip.gpu.groups_at_once(schedule.threads, use.registers, shared_bytes(function))
    assert at_once >= function.resident > 0
    text = disassemble(code.code)
    loop = max(loops_of(text), key=lambda counts: counts["FFMA"])
    assert text.count(" STG.E") == text.count(" STG.E.128 ") == 32
    assert loop["FFMA"] == 128 * schedule.terms
    assert loop["LDS"] - 6 * schedule.terms in (0, 3), "ptxas has three of nothing before copies"
    assert loop["FFMA"] / loop.total() >= 0.89
    assert loop["LDGSTS"] > 0 == loop["LDG"] == loop["STS"]


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
def test_sums_of_many_parts_are_not_read_at_once() -> None:
    """64 of each of nine parts would be more than the registers of a thread."""
    chip, kernel = find_chip("sm_90a"), kernel_of(product(784, 128, 1152, "f32"))
    schedule = GroupProduct(64, 128, 8, 8, 8, 4, 4, parts=9)
    function = lower_groups(kernel, schedule)
    use = assemble(ptx_text(llvm_text([function], chip), chip), chip).uses["k"]
    assert use.spilled == 0 and use.registers <= 160


def test_an_instruction_that_takes_more_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel stays as it was, the other one has fewer."""

    def assembled(ptx: str, chip: Chip) -> Cubin:
        names = [name for name in ("k", "l") if f".entry {name}" in ptx]
        few = {name: f"{name}()\n.reqntid 256, 1, 1\n.maxnreg 128" in ptx for name in names}
        if few.get("k"):
            raise CudaToolError(
                "Insufficient registers at line 9 in function k. Try 129 or higher."
            )
        return Cubin(b"", {name: KernelResources(128 if few[name] else 130) for name in few})

    monkeypatch.setattr(tools, "_assembled", assembled)
    ptx = "".join(f".entry {name}()\n.reqntid 256, 1, 1\n{{ }}\n" for name in ("k", "l"))
    uses = assemble(ptx, find_chip("sm_80")).uses
    assert (uses["k"].registers, uses["l"].registers) == (130, 128)


def test_fewer_registers_where_all_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """ptxas spills with 255 and with 240, and not with 224."""

    def assembled(ptx: str, chip: Chip) -> Cubin:
        bound = next((n for n in (240, 224, 200) if f".maxnreg {n}" in ptx), 255)
        return Cubin(b"", {"k": KernelResources(bound, stored=8 * (bound != 224))})

    monkeypatch.setattr(tools, "_assembled", assembled)
    made = assemble(".entry k(.param .u64 p)\n.reqntid 128, 1, 1\n{ }", find_chip("sm_80"))
    assert made.uses["k"] == KernelResources(224)


@pytest.mark.parametrize("room", [True, False])
def test_a_few_registers_less_for_one_more_group(
    room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless that spills."""
    asked: list[str] = []

    def assembled(ptx: str, chip: Chip) -> Cubin:
        asked.append(ptx)
        bound = ".maxnreg 128" in ptx
        spilled = 8 if bound and not room else 0
        return Cubin(b"", {"k": KernelResources(128 if bound else 130, stored=spilled)})

    monkeypatch.setattr(tools, "_assembled", assembled)
    made = assemble(".entry k(.param .u64 p)\n.reqntid 16, 16, 1\n{ }", find_chip("sm_80"))
    assert len(asked) == (3 if room else 2)
    assert made.uses["k"] == KernelResources(128 if room else 130)
    few = assemble(".entry k(.param .u64 p)\n.reqntid 32, 1, 1\n{ }", find_chip("sm_80"))
    assert few.uses["k"].registers == 130, "of many groups one more tells little"
