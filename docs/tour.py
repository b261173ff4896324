"""A tour of modelcc: two layers from a graph to machine code, one level at a time.

Run it with ``python -m docs.tour``; the test suite does so too, so every claim here is checked.
Each step prints the program on its level and asserts that it still means the same.
"""

# ruff: noqa: E402  (imports stand where a reader meets them)

from __future__ import annotations

# 1. A graph: ops on immutable, named tensors ---------------------------------------------------
#
# ``batch`` is a named dimension: a symbol of the index algebra, which shape rules compute with.
# A constant is a handle to an array.
import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Sym
from modelcc.ir.types import F32, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add
from modelcc.ops.matmul import MatMul

rng = np.random.default_rng(0)
weights = [rng.normal(size=shape).astype(np.float32) for shape in ((6, 16), (16, 3))]
bias = rng.normal(size=16).astype(np.float32)

build = GraphBuilder("two_layers")
x = build.input("x", TensorType((Sym("batch"), 6), F32))
hidden = build.emit(MatMul(), x, build.constant(weights[0], name="w1"), source=("fc1",))
hidden = build.emit(Add(), hidden, build.constant(bias, name="b1"), source=("fc1",))
hidden = build.emit(Relu(), hidden, source=("relu",))
y = build.emit(MatMul(), hidden, build.constant(weights[1], name="w2"), name="y", source=("fc2",))
graph = build.build([y])

verify_graph(graph)
assert str(graph.types["y"]) == "f32[batch, 3]"
print("\n# graph\n" + print_graph(graph))

# The text is MLIR's generic form and reads back to an equal graph.
from modelcc.ir.graph_parser import parse_graph
from modelcc.ops.registry import dialects

assert parse_graph(print_graph(graph), constants_by_digest(graph), dialects()) == graph

# 2. What it means: the reference interpreter ---------------------------------------------------
#
# Every level has one.  This one calls the NumPy meaning of each op.
from modelcc.ir.graph_interpreter import interpret

example = rng.normal(size=(5, 6)).astype(np.float32)
expected = np.maximum(example @ weights[0] + bias, 0) @ weights[1]


def same(got: np.ndarray) -> bool:
    """Whether this is the right answer for ``example``."""
    return got.shape == expected.shape and bool(np.allclose(got, expected, rtol=1e-5, atol=1e-5))


assert same(interpret(graph, {"x": example})["y"])

# 3. A pass: a frozen dataclass, called on a graph ----------------------------------------------
from modelcc.passes.graph.canonicalise import Canonicalise

graph = Canonicalise()(graph)
assert same(interpret(graph, {"x": example})["y"])

# 4. The tensor level: for each op its axes, reads and one scalar expression --------------------
#
# From here on no op has a name: a matrix product is a product of two reads under a sum.
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.from_graph import lower_graph

tensors = lower_graph(graph)
verify_tensor_program(tensors)
print("# tensor\n" + print_tensor_program(tensors))
assert "sum[" in print_tensor_program(tensors)
assert same(run_program(tensors, {"x": example}, {"batch": 5})["y"])

# 5. Fusion: stages move into the kernels that read them ----------------------------------------
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.inline import InlineStages

fused = FuseKernels()(InlineStages()(tensors))
verify_tensor_program(fused)
print("# tensor, fused\n" + print_tensor_program(fused))
assert len(fused.items) < len(tensors.items)
assert same(run_program(fused, {"x": example}, {"batch": 5})["y"])

# 6. The loop level: a schedule decides how a kernel becomes loops ------------------------------
#
# Vectors, tiles and packed weights appear here, for a processor described by a few numbers.
from modelcc.ir.loop_parser import parse_functions
from modelcc.ir.loop_text import print_functions
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program

scheduled = schedule_program(fused, CpuModel(vector_bits=256, vector_registers=16))
functions = scheduled.functions
print("# loop\n" + print_functions(functions))
assert tuple(parse_functions(print_functions(functions))) == functions

# 7. The program: launches of these functions, and a plan of one arena --------------------------
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_text import print_program
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.plan_memory import plan_memory

(result,) = interpret_program(scheduled, {"x": example}).values()
assert same(result)
program = apply_plan(scheduled, plan_memory(scheduled))
print("# program, without its functions\n" + print_program(program).split("func @")[0])
(result,) = interpret_program(program, {"x": example}).values()
assert same(result)

# 8. LLVM: the loop level printed as text -------------------------------------------------------
from modelcc.targets.llvm.emitter import emit_llvm

llvm = emit_llvm(functions)
print("# llvm, the first lines\n" + "\n".join(llvm.splitlines()[:12]) + "\n  ...\n")
assert "define" in llvm

# 9. All of it at once, for this machine --------------------------------------------------------
#
# ``driver.py`` runs the same steps, and more of them, as one list of stages.
import modelcc

net = modelcc.compile(graph, threads=1, cache=None)
assert same(np.asarray(net(example)))
for batch in (1, 2, 33):  # compiled once, for any batch size
    example = rng.normal(size=(batch, 6)).astype(np.float32)
    expected = np.maximum(example @ weights[0] + bias, 0) @ weights[1]
    assert same(np.asarray(net(example)))
print(f"# native: {len(net.report().kernels)} kernels; every step gave the same result")
