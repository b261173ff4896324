"""The backend of ``torch.compile``, found by its entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import DataDependentOutputException, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

import modelcc.api
from modelcc.frontends.torch.decompositions import functional_decompositions
from modelcc.frontends.torch.handlers import HANDLERS
from modelcc.frontends.torch.partial_conversion import HOST
from modelcc.frontends.torch.traced import Traced
from modelcc.ir.errors import ModelError
from modelcc.runtime.arenas import Arenas
from modelcc.torch.compiled_call import CompiledCall
from modelcc.torch.devices import graph_device, target_on
from modelcc.torch.dropout import masks_apart
from modelcc.torch.partition import Frozen, Parted, joined, parted, with_constants
from modelcc.torch.positions import check_positions
from modelcc.torch.recurrent import by_layers
from modelcc.torch.released import release
from modelcc.torch.tensor_memory import HostMemory, TensorMemory, gpu_memory
from modelcc.torch.upsampling import keep_upsampling
from modelcc.torch.writes import WritingCall, without_writes

OPTIONS = frozenset(
    {
        *("freeze", "release", "target", "threads", "cpu", "optimize", "accuracy", "precision"),
        *("winograd", "strassen", "schedule", "tuned", "libraries", "kernels"),
        *("unchecked", "machine"),
        *("measured", "cache", "separate"),
    }
)
"""Options of :func:`modelcc.compile` that apply to any graph, and our own."""

MODES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "default": {},
        "reduce-overhead": {},
        "max-autotune": {"tuned": True},
        "max-autotune-no-cudagraphs": {"tuned": True},
    }
)
"""PyTorch's modes, as options: calls have no overhead left to remove, and nothing is measured while
a graph is compiled."""

Observer = Callable[[str, Parted], None]
"""Called with ``forward``, ``backward`` or ``inference`` and the partitioned graph."""


def backend(
    module: fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """``torch.compile(model, backend="modelcc")``: forward, and backward if requested.

    ``options`` are arguments of :func:`modelcc.compile` (``threads`` is PyTorch's number by
    default), and ``freeze``: parameters become constants, packed once, in graphs without gradients;
    they must not change afterwards.  With ``release``, which freezes, too, PyTorch's own memory of
    these parameters is freed: the model cannot be used outside the compiled graph afterwards.
    Another process compiles, or this one if ``separate`` is False.  ``mode`` is one of
    ``MODES``.  Operators that modelcc lacks run in PyTorch, see :func:`modelcc.torch.explain`.  A
    graph whose inputs are on a GPU is compiled for it.  :class:`ModelError` for tensors of other
    devices, unknown options and modes.
    """
    return compiled_by(_request(options, mode), module, examples)


@dataclass(frozen=True)
class BackendRequest:
    """What to compile with: arguments of :func:`modelcc.compile`, and an optional observer.

    ``device`` is the GPU of the graph's tensors, None if all are on the host.
    """

    arguments: Mapping[str, Any]
    freeze: bool = False
    release: bool = False
    observer: Observer | None = None
    device: torch.device | None = None


def _request(options: Mapping[str, Any] | None, mode: str | None) -> BackendRequest:
    if mode not in (None, *MODES):
        hint = f"modes: {', '.join(MODES)}; or give options, as in {{'optimize': 3}}"
        raise ModelError(f"there is no mode {mode!r}", ("torch.compile",), hint)
    given = {**MODES[mode or "default"], **(options or {})}
    unknown = sorted(given.keys() - OPTIONS)
    if unknown:
        hint = f"options: {', '.join(sorted(OPTIONS))}"
        raise ModelError(f"there is no option {unknown[0]!r}", ("torch.compile",), hint)
    release = bool(given.pop("release", False))
    freeze = bool(given.pop("freeze", False)) or release
    usual = {"threads": torch.get_num_threads(), "separate": None}
    return BackendRequest({**usual, **given}, freeze, release)


def compiled_by(
    request: BackendRequest, module: fx.GraphModule, examples: Sequence[Any]
) -> Callable[..., Any]:
    """``module``, as traced by Dynamo, compiled as ``request`` says."""
    device = graph_device(module)
    if device is not None:
        arguments = {**request.arguments, "target": target_on(device, request.arguments)}
        request = replace(request, arguments=arguments, device=device)
    by_layers(module)
    keep_upsampling(module)
    keep = _sets_memory(module) or not _learns(module)
    inference = partial(_compiled, request, "inference", examples if request.freeze else ())
    whole: Any = aot_autograd(
        fw_compiler=partial(_compiled, request, "forward", ()),
        bw_compiler=partial(_compiled, request, "backward", ()),
        inference_compiler=inference,
        decompositions=functional_decompositions(HANDLERS),
        partition_fn=default_partition if keep else min_cut_rematerialization_partition,
        keep_inference_input_mutations=keep,
    )
    try:
        return whole(module, examples)
    except (DataDependentOutputException, GuardOnDataDependentSymNode):
        check_positions(module)
        raise


def _sets_memory(module: fx.GraphModule) -> bool:
    """Whether a tensor's storage is replaced, as by ``x.data = y``: AOTAutograd requires that this
    is kept in the graph, where PyTorch runs it."""
    tensor: Any = torch.Tensor  # set_ has no type
    return any(node.target is tensor.set_ for node in module.graph.nodes)


def _learns(module: fx.GraphModule) -> bool:
    """Whether a result requires gradients.

    Mutations of arguments are not kept in such graphs: PyTorch would recompute in backward, from
    the mutated arguments, values that depend on the original ones.
    """
    results: Any = module.graph.output_node().all_input_nodes
    fakes: list[Any] = [node.meta.get("example_value") for node in results]
    return any(getattr(fake, "requires_grad", False) for fake in fakes)


def _compiled(
    request: BackendRequest,
    kind: str,
    examples: Sequence[Any],
    module: fx.GraphModule,
    _: Sequence[Any],
) -> Callable[[list[Any]], Any]:
    """One graph of AOTAutograd's, called with a list of its arguments."""
    with unset_fake_temporarily():  # constants have contents
        frozen = _frozen(examples)
        own = with_constants(module, frozen) if frozen else module
        call = _built(request, kind, own)
        del own  # and with it other references to the memory of constants
        if request.release:
            read = call.constants if isinstance(call, _Boxed) else ()
            release(t for t in frozen.values() if not any(t is one for one in read))
        return call


def _built(
    request: BackendRequest, kind: str, module: fx.GraphModule
) -> Callable[[list[Any]], Any]:
    module, writes = without_writes(masks_apart(module))
    sharing = kind == "inference"  # autograd keeps views of results itself
    parts = parted(module, sharing, writes, HOST if request.device is None else request.device.type)
    if request.observer is not None:
        request.observer(kind, parts)
    if parts.whole is not None:
        call, done = _call(request, parts.whole, checked=False), parts.whole.written(len(writes))
    else:
        calls = {n: _call(request, t, checked=True).unboxed for n, t in parts.parts.items()}
        call, done = _Boxed(joined(parts, calls)), (False,) * len(writes)
    return WritingCall(call, writes, done) if writes else call


class _Boxed:
    """A torch.fx module, called with a list of its arguments, which it empties."""

    def __init__(self, module: Any) -> None:
        self._boxed_call = True  # on the instance: wrappers copy its dictionary
        self._module = module

    @property
    def constants(self) -> tuple[torch.Tensor, ...]:
        """Attributes that PyTorch reads in a call."""
        read = [node.target for node in self._module.graph.nodes if node.op == "get_attr"]
        return tuple(getattr(self._module, name) for name in read)

    def __call__(self, arguments: list[Any]) -> Any:
        given = list(arguments)
        arguments.clear()
        return self._module(*given)


def _call(request: BackendRequest, traced: Traced, checked: bool) -> CompiledCall:
    model = modelcc.api.compile(traced.graph, **request.arguments)
    interface, session = traced.interface, model.session
    if request.device is None:
        memory: TensorMemory = HostMemory(interface, session, _arenas())
    else:
        memory = gpu_memory(interface, session, request.device)
    return CompiledCall(interface, session, memory, checked)


def _arenas() -> Arenas:
    """The process-wide arenas, alive while there are compiled graphs: forward and backward, and one
    graph and the next, never run concurrently in a thread."""
    return _shared().setdefault("arenas", Arenas())


@cache
def _shared() -> WeakValueDictionary[str, Arenas]:
    return WeakValueDictionary()


def _frozen(examples: Sequence[Any]) -> Frozen:
    """Parameters and buffers that no call mutates, by argument position."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    if metadata is None or len(metadata.input_info) != len(examples):
        return {}
    changed = {*metadata.mutated_inp_runtime_indices, *metadata.mutated_graph_handled_indices}
    fixed = [i for i in metadata.static_input_indices if i not in changed]
    return {i: examples[i] for i in fixed if isinstance(examples[i], torch.Tensor)}
