"""Products of matrices as kernels."""

from __future__ import annotations

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.cuda.chips import Chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import default_schedule, lower_groups
from modelcc.targets.gpu.products.epilogue_staging import kept_type
from modelcc.targets.gpu.products.tensor_choice import tensor_bytes, tensor_registers
from modelcc.targets.llvm.groups import shared_bytes


def product(
    m: int, n: int, k: int, dtype: str, turned: bool = False, other: str = ""
) -> TensorProgram:
    """Rows by columns, or by rows of the other operand, maybe of an ``other`` type, with a bias,
    bounded below."""
    right, at = (f"{n}, {k}", "j, l") if turned else (f"{k}, {n}", "l, j")
    sums = "i32" if dtype in ("i8", "u8") else "f32"
    inputs = f"%a: {dtype}[{m}, {k}], %b: {other or dtype}[{right}], %c: {sums}[{n}]"
    return parse_tensor_program(
        f"""program @p({inputs}) -> (%y) {{
          kernel @k({inputs}) -> (%y: {dtype}[{m}, {n}]) {{
            %p: {sums}[{m}, {n}] = [i < {m}, j < {n}] sum[l < {k}]
              {sums}(%a[i, l]) * {sums}(%b[{at}])
            %y: {dtype}[{m}, {n}] = [i < {m}, j < {n}] {dtype}(max(%p[i, j] + %c[j], %c[0]))
          }} }}""",
        {},
    )


def kernel_of(program: TensorProgram) -> GroupKernel:
    (item,) = program.items
    assert isinstance(item, Kernel)
    return GroupKernel(canonical(item, program.types, frozenset(), program.dims)[0], "k")


def code_as_planned(program: TensorProgram, chip: Chip) -> tuple[TensorProduct, str]:
    """The schedule that is chosen for tensor cores, and its machine code, of which nothing spills
    and as many groups run at once as was planned."""
    kernel = kernel_of(program)
    schedule = default_schedule(kernel.kernel, chip.gpu)
    assert isinstance(schedule, TensorProduct)
    function = lower_groups(kernel, schedule)
    made = assemble(ptx_text(llvm_text([function], chip), chip), chip)
    use, shared = made.uses["k"], shared_bytes(function)
    assert use.spilled == 0
    found = group_contraction(kernel.group)
    assert found is not None
    taken = tensor_bytes(schedule, found, found.left.value.dtype, kept_type(kernel.group))
    planned = tensor_registers(schedule, found.left.value.dtype, found), taken
    assert shared == planned[1]
    at_once = chip.gpu.groups_at_once
    groups = at_once(schedule.threads, *planned)
    assert at_once(schedule.threads, use.registers, shared) >= groups > 0
    return schedule, disassemble(made.code)
