"""Preparation of a float model for quantisation: norms folded, composite ops kept."""

from __future__ import annotations

from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ops.quant import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from modelcc.passes.graph.bodies import in_bodies
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.eliminate_reshapes import EliminateReshapes
from modelcc.passes.graph.fold_batch_norm import FoldBatchNorm
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.graph.recognise_gelu import RecogniseGelu
from modelcc.passes.graph.recognise_hard_swish import RecogniseHardSwish
from modelcc.passes.graph.recognise_layer_norm import RecogniseLayerNorm
from modelcc.passes.graph.recognise_rms_norm import RecogniseRmsNorm
from modelcc.passes.graph.recognise_silu import RecogniseSilu
from modelcc.passes.graph.recognise_softmax import RecogniseSoftmax
from modelcc.passes.graph.simplify_algebra import SimplifyAlgebra
from modelcc.passes.graph.simplify_control import SimplifyControl

INTEGERS = (
    *(QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear),
    *(ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul),
)

STEPS = (
    *(FoldConstants(), SimplifyControl(), Canonicalise(), CommonSubexpressions()),
    *(RecogniseGelu(), RecogniseSilu(), RecogniseHardSwish()),
    *(RecogniseLayerNorm(), RecogniseRmsNorm(), RecogniseSoftmax()),
    *(SimplifyAlgebra(), FoldConstants(), EliminateReshapes(), FoldBatchNorm()),
    *(Canonicalise(), CommonSubexpressions(), DeadCode()),
)


def prepared_graph(graph: Graph) -> Graph:
    """The graph to quantise; :class:`ModelError` if it is quantised already, or if a call does not
    depend on its inputs alone, which are tensors."""
    if graph.interface is not None and not graph.interface.is_plain:
        what = "a model that keeps states, or whose arguments are no tensors, cannot be quantised"
        raise ModelError(what, (graph.name,), "quantise the part of it that computes")
    done = next((node for node in graph.nodes if isinstance(node.op, INTEGERS)), None)
    if done is not None:
        place = done.source or done.outputs
        hint = "quantise the float model that it was made from"
        raise ModelError(f"{done.op.mnemonic()}: the model is quantised already", place, hint)
    for step in STEPS:
        graph = in_bodies(step)(graph)
    return graph
