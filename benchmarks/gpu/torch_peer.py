"""PyTorch on the same device: kernels by its libraries and compiler, and its own models."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.gpu.cases import HEADS, Case
from benchmarks.gpu.clock import Measure, MissingPeerError, Step, call_seconds
from benchmarks.gpu.entries import Entry

FLUSHED = 64 << 20
"""Bytes that are overwritten before each run to flush caches, as modelcc's own clock does."""

RUNS, COPIED = 20, 1 << 30

MODES = {"torch.compile": "reduce-overhead", "max-autotune": "max-autotune"}
"""Modes of ``torch.compile`` by engine, for models."""


def torch_on(device: str) -> Any:
    """The package; MissingPeerError if it is missing, or has no GPU but needs one."""
    if find_spec("torch") is None:
        raise MissingPeerError("PyTorch is not installed")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # of each of many processes
    torch = import_module("torch")
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingPeerError("PyTorch sees no GPU")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def forget() -> None:
    """Frees unused memory."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.compiler.reset()
        torch.cuda.empty_cache()


def tensor_on(torch: Any, device: str, array: Any) -> Any:
    """A NumPy array as a tensor there; NumPy has no bf16 of its own."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def kernel(engine: str, case: Case, device: str) -> Measure:
    """Seconds of the equivalent computation."""
    torch = torch_on(device)
    given = {name: tensor_on(torch, device, array) for name, array in case.feeds().items()}
    step = _step(torch, engine, case, given)

    def measure() -> float:
        with torch.no_grad():
            return _seconds(torch, device, step)

    return measure


def copy(device: str) -> Measure:
    """Seconds of a copy of :data:`COPIED` bytes, which reads and writes them."""
    torch = torch_on(device)
    size = COPIED if device == "cuda" else COPIED >> 8
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: _seconds(torch, device, lambda: target.copy_(source)) * (COPIED / size)


def _step(torch: Any, engine: str, case: Case, given: Mapping[str, Any]) -> Step:
    functional = torch.nn.functional
    match case.peer:
        case "product":
            return lambda: torch.matmul(given["a"], given["b"])
        case "layer":
            whole = _compiled(torch, engine, lambda *g: _layer(functional, *g))
            return lambda: whole(*given.values())
        case "softmax":
            rows = _compiled(torch, engine, lambda x: torch.softmax(x, -1))
            return lambda: rows(given["x"])
        case "transpose":
            return lambda: given["x"].t().contiguous()
        case "layer_norm":
            columns = case.shapes["s"]
            norm = _compiled(torch, engine, lambda *g: functional.layer_norm(g[0], columns, *g[1:]))
            return lambda: norm(given["x"], given["s"], given["t"])
        case _:
            return _attention(torch, engine, case, given)


def _layer(functional: Any, a: Any, b: Any, c: Any, residual: Any = None) -> Any:
    sums = a @ b + c
    return functional.gelu(sums) if residual is None else sums + residual


def _compiled(torch: Any, engine: str, function: Callable[..., object]) -> Callable[..., object]:
    return torch.compile(function, dynamic=False) if engine == "inductor" else function


def _attention(torch: Any, engine: str, case: Case, given: Mapping[str, Any]) -> Step:
    causal = case.peer == "causal"
    parts = [given[name].unflatten(-1, (HEADS, -1)) for name in "qkv"]
    if engine == "fa3":
        if find_spec("flash_attn_interface") is None:
            raise MissingPeerError("FlashAttention 3 is not installed")
        attend = import_module("flash_attn_interface").flash_attn_func
        return lambda: attend(*parts, causal=causal)
    library, names = torch.nn.attention, {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
    backend = getattr(library.SDPBackend, names[engine])
    q, k, v = (part.transpose(1, 2) for part in parts)

    def step() -> object:
        with library.sdpa_kernel([backend]):
            function = torch.nn.functional.scaled_dot_product_attention
            return function(q, k, v, is_causal=causal)

    return step


def _seconds(torch: Any, device: str, step: Step) -> float:
    return event_seconds(torch, step) if device == "cuda" else call_seconds(step)


def event_seconds(torch: Any, step: Step) -> float:
    """Median time between events, with flushed caches."""
    cleared = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    pairs: list[tuple[Any, Any]] = []
    for number in range(RUNS + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "12")
        cleared.zero_()
        begin.record()
        step()
        end.record()
        if number >= 3:
            pairs.append((begin, end))
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) for begin, end in pairs) * 1e-3


def _vision(name: str) -> Callable[[], Any]:
    return lambda: import_module("timm").create_model(name, pretrained=False)


def _language(kind: str, config: str, **sizes: int) -> Callable[[], Any]:
    def made() -> Any:
        library = import_module("transformers")
        settings = getattr(library, config)(**sizes, attn_implementation="sdpa")
        return getattr(library, kind)(settings)

    return made


_LLAMA = _language(
    "LlamaForCausalLM", "LlamaConfig", vocab_size=32000, hidden_size=1024, intermediate_size=2816,
    num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4,
)  # fmt: skip

MODULES: Mapping[str, Callable[[], Any]] = {
    "resnet50": _vision("resnet50"),
    "convnext_tiny": _vision("convnext_tiny"),
    "vit_base_patch16_224": _vision("vit_base_patch16_224"),
    "bert_base": _language("BertModel", "BertConfig"),
    "gpt2_prefill": _language("GPT2LMHeadModel", "GPT2Config"),
    "llama_prefill": _LLAMA,
    "llama_decode": _LLAMA,
}
"""The same architectures with other weights, by model names."""


def model(engine: str, entry: Entry, device: str) -> Measure:
    """Seconds of a call, eager or compiled, with inputs on the device."""
    torch = torch_on(device)
    import_module("benchmarks.zoo.torchvision_operators")  # before timm and transformers do
    found = next((stem for stem in MODULES if entry.stem.startswith(stem)), None)
    if found is None:
        raise ValueError(f"there is no {entry.stem} in PyTorch here")
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[entry.dtype]
    module = MODULES[found]().eval().to(device).to(kind)
    given = {name: tensor_on(torch, device, value) for name, value in entry.feeds().items()}
    call = _call(module, given)
    if engine in MODES:
        call = torch.compile(call, mode=MODES[engine], dynamic=False)

    def step() -> None:
        with torch.no_grad():
            call()
            if device == "cuda":
                torch.cuda.synchronize()

    step()
    return lambda: call_seconds(step)


def _call(module: Any, given: Mapping[str, Any]) -> Step:
    """Encoders and classifiers take the inputs as they are; decoders have caches."""
    past = [value for name, value in given.items() if name.startswith("past_key_values")]
    if not past:
        caches = {"use_cache": False} if hasattr(module, "generate") else {}
        named = "attention_mask" in given
        return lambda: module(**given) if named else module(*given.values(), **caches)
    library = import_module("transformers")
    pairs = list(zip(past[::2], past[1::2], strict=True))

    def decode() -> object:
        cache = library.DynamicCache(pairs)
        return module(given["input_ids"], past_key_values=cache, use_cache=True)

    return decode
