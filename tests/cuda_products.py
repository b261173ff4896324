"""Products of matrices as kernels."""

from __future__ import annotations

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.canonical import canonical
from modelcc.targets.gpu.evaluation import GroupKernel


def product(m: int, n: int, k: int, dtype: str, turned: bool = False) -> TensorProgram:
    """Rows by columns, or by rows of the other operand, with a bias, bounded below."""
    right, at = (f"{n}, {k}", "j, l") if turned else (f"{k}, {n}", "l, j")
    sums = "i32" if dtype == "i8" else "f32"
    inputs = f"%a: {dtype}[{m}, {k}], %b: {dtype}[{right}], %c: {sums}[{n}]"
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
