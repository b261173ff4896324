"""XLA on the same device: kernels by JAX, and models as StableHLO exported by modelcc, with weights
as arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx

from benchmarks.gpu.cases import HEADS, Case
from benchmarks.gpu.clock import Measure, MissingPeerError, call_seconds
from benchmarks.gpu.entries import Entry
from benchmarks.gpu.weights import grown, held
from modelcc.driver import import_model
from modelcc.emit.emission import stablehlo_text
from modelcc.ir.graph import Graph
from modelcc.options import Options


def jax_on(device: str) -> Any:
    """The package; MissingPeerError if it is missing, or has no GPU but needs one."""
    if find_spec("jax") is None:
        raise MissingPeerError("JAX is not installed")
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # other engines need memory, too
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    if device != "cuda":
        jax.config.update("jax_platforms", "cpu")
    elif jax.default_backend() != "gpu":
        raise MissingPeerError("JAX sees no GPU")
    return jax


def kernel(case: Case, device: str) -> Measure:
    """Seconds of a call of the equivalent computation, by consecutive calls: JAX has no device
    clock."""
    jax = jax_on(device)
    given = {name: jax.device_put(value) for name, value in case.feeds().items()}
    precision = "highest" if case.dtype == "f32" else "default"  # of f32, it may be tf32
    jax.config.update("jax_default_matmul_precision", precision)
    function = jax.jit(_function(jax, case))
    calls = 1 if device != "cuda" else max(1, min(50, int(1e13 / case.operations)))

    def step() -> None:
        jax.block_until_ready([function(**given) for _ in range(calls)][-1])

    return lambda: call_seconds(step) / calls


def _function(jax: Any, case: Case) -> Callable[..., Any]:
    match case.peer:
        case "product":
            return lambda a, b: a @ b
        case "softmax":
            return lambda x: jax.nn.softmax(x, -1)
        case "transpose":
            return lambda x: x.T.copy()
        case "layer_norm":

            def norm(x: Any, s: Any, t: Any) -> Any:
                wide = x.astype("float32")
                centred = wide - wide.mean(-1, keepdims=True)
                scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
                return scaled.astype(x.dtype) * s + t

            return norm
        case _:
            attend, causal = jax.nn.dot_product_attention, case.peer == "causal"

            def attention(q: Any, k: Any, v: Any) -> Any:
                parts = (x.reshape(1, x.shape[1], HEADS, -1) for x in (q, k, v))
                return attend(*parts, is_causal=causal)

            return attention


def model(entry: Entry, device: str) -> tuple[float, Measure]:
    """The error, and seconds of a call with inputs and weights on the device."""
    jax = jax_on(device)
    graph, weights = with_weights_apart(entry)
    feeds = {**entry.feeds(), **weights}
    given = [jax.device_put(feeds[name]) for name in graph.inputs]
    function = jax.jit(compiled_text(stablehlo_text(graph), graph))
    found = [np.asarray(result) for result in function(*given)]
    error = entry.error(dict(zip(graph.outputs, found, strict=True)))
    return error, lambda: call_seconds(lambda: jax.block_until_ready(function(*given)))


def with_weights_apart(entry: Entry) -> tuple[Graph, Mapping[str, Any]]:
    """The graph of a model with large weights as inputs, and these."""
    light, whole = entry.read(), grown(entry.read())
    names = held(light).keys()
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in whole.graph.initializer
               if t.name in names}  # fmt: skip
    left = [tensor for tensor in light.graph.initializer if tensor.name not in names]
    light.graph.ClearField("initializer")
    light.graph.initializer.extend(left)
    kinds = {tensor.name: tensor.data_type for tensor in whole.graph.initializer}
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, kinds[name], value.shape)
        for name, value in weights.items()
    )
    dims = tuple(entry.dims(light).items())
    return import_model(light, Options(dims=dims)), weights


def compiled_text(text: str, graph: Graph) -> Callable[..., Any]:
    """A JAX function for a StableHLO module."""
    jax = import_module("jax")
    mlir: Any = import_module("jax.interpreters.mlir")
    ir: Any = import_module("jaxlib.mlir.ir")
    dialect: Any = import_module("jaxlib.mlir.dialects.func")
    primitive = import_module("jax.extend.core").Primitive("modelcc_text")
    primitive.multiple_results = True
    types = [graph.types[name] for name in graph.outputs]

    def results(*_: Any) -> Sequence[Any]:
        return [jax.core.ShapedArray(type.shape, type.dtype.numpy) for type in types]

    def lowered(context: Any, *operands: Any) -> Any:
        whole = context.module_context.module
        module = ir.Module.parse(text)
        signature = ir.SymbolTable(module.operation)["main"].attributes["function_type"]
        made = ir.FunctionType(signature.value).results
        name = mlir.merge_mlir_modules(whole, "modelcc_text", module)
        return dialect.CallOp(made, ir.FlatSymbolRefAttr.get(name), operands).results

    primitive.def_abstract_eval(results)
    mlir.register_lowering(primitive, lowered)
    return lambda *given: primitive.bind(*given)
