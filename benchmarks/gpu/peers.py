"""PyTorch on the same GPU: kernels by its libraries, and models of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.gpu.cases import HEADS, Case

Step = Callable[[], object]
FLUSHED = 64 << 20
"""Bytes that are cleared before each run, as modelcc's own clock does."""

RUNS = 20


def torch_on_gpu() -> Any:
    """The package, None if it is not there or sees no GPU."""
    if find_spec("torch") is None:
        return None
    torch = import_module("torch")
    return torch if torch.cuda.is_available() else None


def kernel_steps(torch: Any, case: Case) -> Iterator[tuple[str, Step]]:
    """What computes the same, by library."""
    functional = torch.nn.functional
    given = {name: on_gpu(torch, array) for name, array in case.feeds().items()}
    match case.peer:
        case "product":
            yield "cublas", lambda: torch.matmul(given["a"], given["b"])
        case "softmax":
            yield "torch", lambda: torch.softmax(given["x"], -1)
        case "layer_norm":
            columns = case.shapes["s"]
            yield (
                "torch",
                lambda: functional.layer_norm(given["x"], columns, given["s"], given["t"]),
            )
        case _:
            q, k, v = (given[n].unflatten(-1, (HEADS, -1)).transpose(1, 2) for n in "qkv")
            attend, causal = functional.scaled_dot_product_attention, case.peer == "causal"
            backends = torch.nn.attention.SDPBackend
            for backend in (backends.FLASH_ATTENTION, backends.CUDNN_ATTENTION):

                def step(backend: Any = backend) -> object:
                    with torch.nn.attention.sdpa_kernel([backend]):
                        return attend(q, k, v, is_causal=causal)

                yield backend.name.lower().replace("_attention", ""), step


def on_gpu(torch: Any, array: Any) -> Any:
    """A NumPy array as a tensor there; it has no bf16 of its own."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16).cuda()
    return torch.from_numpy(array).cuda()


def kernel_seconds(torch: Any, step: Step) -> float:
    """Between events, caches cleared before; the median."""
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


def kernel_times(torch: Any, case: Case) -> dict[str, float]:
    """Seconds of all that can compute it."""
    found: dict[str, float] = {}
    for name, step in kernel_steps(torch, case):
        with suppress(RuntimeError), torch.no_grad():  # a library that has no such kernel
            found[name] = kernel_seconds(torch, step)
    return found


def bandwidth(torch: Any) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * (1 << 30) / kernel_seconds(torch, lambda: target.copy_(source))


def _vision(name: str) -> Callable[[], Any]:
    return lambda: getattr(import_module("torchvision.models"), name)()


def _language(kind: str, config: str, **sizes: int) -> Callable[[], Any]:
    def made() -> Any:
        library = import_module("transformers")
        return getattr(library, kind)(getattr(library, config)(**sizes))

    return made


MODULES: Mapping[str, Callable[[], Any]] = {
    "resnet50": _vision("resnet50"),
    "convnext_tiny": _vision("convnext_tiny"),
    "vit_base_patch16_224": _vision("vit_b_16"),
    "bert_base": _language("BertModel", "BertConfig"),
    "gpt2_prefill": _language("GPT2LMHeadModel", "GPT2Config"),
}
"""The same architectures with other weights, by names of models."""


def model_steps(torch: Any, name: str, dtype: str, feeds: Mapping[str, Any]) -> dict[str, Step]:
    """Eager, and compiled for the least overhead, as ``max-autotune`` takes minutes for each model;
    of inputs on the GPU."""
    found = next((stem for stem in MODULES if name.startswith(stem)), None)
    if torch is None or found is None:
        return {}
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    module = MODULES[found]().eval().cuda().to(kind)
    given = [on_gpu(torch, value) for value in feeds.values()]
    compiled = torch.compile(module, mode="reduce-overhead")

    def step(run: Callable[..., object]) -> Step:
        def call() -> None:
            with torch.no_grad():
                run(*given)
                torch.cuda.synchronize()

        return call

    return {"torch": step(module), "torch.compile": step(compiled)}
