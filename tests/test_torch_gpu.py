"""``torch.compile`` of models on a GPU: graphs that are traced there, run on a stand-in for its
driver; and on devices that take the host's tensors."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from cuda_driver import FakeDriver

torch: Any = pytest.importorskip("torch")
pytest.importorskip("modelcc.runtime.streams.cuda_device")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx

from modelcc.driver import NOWHERE, pipeline, target_of  # noqa: E402
from modelcc.frontends.torch.traced import import_traced  # noqa: E402
from modelcc.ir.errors import ModelError  # noqa: E402
from modelcc.ir.program import Program  # noqa: E402
from modelcc.options import Options  # noqa: E402
from modelcc.pipeline import before_block, run_stages  # noqa: E402
from modelcc.torch.compiled_call import CompiledCall  # noqa: E402
from modelcc.torch.devices import graph_device, target_on  # noqa: E402
from modelcc.torch.tensor_memory import GpuMemory  # noqa: E402
from modelcc.torch.writes import WritingCall  # noqa: E402
from tests.drivers import missing_driver  # noqa: E402
from tests.runtime.devices.test_device_arrays import number  # noqa: E402
from tests.targets.cuda.test_program import on_driver, prepared  # noqa: E402

nn: Any = torch.nn
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
GPU = "cuda:0"


def traced(function: Callable[..., Any], *examples: Any) -> Any:
    """What is traced where tensors are on a GPU, but for those of ``examples`` with no axes."""
    with FakeTensorMode():
        fakes = [
            torch.empty_strided(
                e.shape, e.stride(), dtype=e.dtype, device=GPU if e.dim() else "cpu"
            )
            for e in examples
        ]
        return make_fx(function)(*fakes)


class Gpu:
    """PyTorch's tensors in the memory of a GPU that is not there, and its stream."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.stream = number(driver.cuStreamCreate(1))
        self.asked: list[str] = []
        """What the last call asked of the driver."""
        self.last: list[Any] = []
        """Its arguments."""

    def empty(self, shape: Any, strides: Any, dtype: Any) -> Any:
        """Where the driver says that the GPU's memory is."""
        size = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        size *= dtype.itemsize
        asked = list(self.driver.calls)
        place = number(self.driver.cuMemAllocAsync(size, self.stream))
        self.driver.cuStreamSynchronize(self.stream)
        self.driver.calls[:] = asked  # PyTorch has it without the driver
        held = (ctypes.c_uint8 * size).from_address(place)
        return torch.frombuffer(held, dtype=dtype).as_strided(shape, strides)

    def of(self, tensor: Any) -> Any:
        """A copy there; one without axes stays on the host."""
        if not tensor.dim():
            return tensor
        return self.empty(tensor.shape, tensor.stride(), tensor.dtype).copy_(tensor)


def called(
    function: Callable[..., Any], *examples: Any, writes: tuple[int, ...] = ()
) -> tuple[Callable[..., Any], Gpu]:
    """``function`` as it is compiled for tensors on a GPU; its last results are what arguments at
    the places ``writes`` become."""
    found = import_traced(traced(function, *examples), device="cuda", writes=writes)
    assert not found.problems
    session, driver = on_driver(prepared(found.graph))
    gpu = Gpu(driver)
    memory = GpuMemory(found.interface, session, lambda: gpu.stream, gpu.empty)
    call: Any = CompiledCall(found.interface, session, memory)
    if writes:
        assert all(found.written(len(writes)))
        call = WritingCall(call, writes, found.written(len(writes)))

    def run(*given: Any) -> Any:
        own = [gpu.of(tensor) for tensor in given]
        driver.calls.clear()
        results = call(list(own))
        gpu.asked = list(driver.calls)
        driver.cuStreamSynchronize(gpu.stream)
        gpu.last = own
        return results

    return run, gpu


def mixed(x: Any, weight: Any, scale: Any) -> Any:
    """A product that is scaled by a number of the host's."""
    return torch.softmax(x @ weight * scale, -1), x.sum(0)


def convolved(x: Any, weight: Any) -> Any:
    return nn.functional.conv2d(x, weight, padding=1).relu()


EXAMPLES = {
    "mixed": (mixed, ((6, 5), (5, 7), ())),
    "convolved": (convolved, ((2, 4, 6, 6), (8, 4, 3, 3))),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_tensors_stay_on_the_gpu(name: str) -> None:
    """Nothing but what is on the host is brought there, and nothing comes back."""
    function, shapes = EXAMPLES[name]
    first = tuple(torch.randn(shape) for shape in shapes)
    run, gpu = called(function, *first)
    for turn in range(4):
        given = tuple(torch.randn(shape) for shape in shapes)
        found, expected = run(*given), function(*given)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert "cuMemcpyDtoHAsync" not in gpu.asked
        assert not turn or gpu.asked.count("cuMemcpyHtoDAsync") == sum(not s for s in shapes)
        assert ("cuStreamSynchronize" in gpu.asked) == (not turn), "a number is brought beside"


def test_strides_are_those_of_eager_execution() -> None:
    """Images whose channels come last, there as well."""

    def function(x: Any, shift: Any) -> Any:
        return torch.sigmoid(x) + shift, x.transpose(0, 1) * 2

    given = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last), torch.randn(4, 1, 1)
    run, _ = called(function, *given)
    for found, expected in zip(run(*given), function(*given), strict=True):
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_result_on_the_host() -> None:
    """What a graph brings there itself."""

    def function(x: Any) -> Any:
        return x + 1, x.sum(1).to("cpu")

    given = torch.randn(4, 5)
    run, gpu = called(function, given)
    for _ in range(3):
        torch.testing.assert_close(run(given), function(given), rtol=1e-5, atol=1e-5)
        assert gpu.asked.count("cuMemcpyDtoHAsync") == 1


def stepped(weight: Any, first: Any, second: Any, gradient: Any) -> Any:
    """Adam's first step, and what parameter and averages become."""
    first = first * 0.9 + gradient * 0.1
    second = second * 0.999 + gradient * gradient * 0.001
    return weight - 0.01 * first / (second.sqrt() + 1e-8), first, second


def cached(cache: Any, row: Any, place: Any) -> Any:
    """A row of a static cache, what is then in it, and what the cache becomes."""
    after = torch.ops.aten.index_put(cache, [None, place], row)
    return after.sum(2), after


@pytest.mark.parametrize("name", ["stepped", "cached"])
def test_nobody_waits_for_what_is_written_to_arguments(name: str) -> None:
    function, shapes, writes = {
        "stepped": (stepped, ((4, 6),) * 4, (0, 1, 2)),
        "cached": (cached, ((2, 8, 4), (2, 1, 4), (1,)), (0,)),
    }[name]
    made = [torch.rand(shape) + 1 for shape in shapes]
    if name == "cached":
        made[2] = torch.tensor([5])
    run, gpu = called(function, *made, writes=writes)
    for turn in range(4):
        results, expected = run(*made), function(*made)
        kept = len(expected) - len(writes)
        torch.testing.assert_close(results, expected[:kept], rtol=1e-5, atol=1e-5)
        changed = [gpu.last[place] for place in writes]
        torch.testing.assert_close(changed, list(expected[kept:]), rtol=1e-5, atol=1e-5)
        assert ("cuStreamSynchronize" in gpu.asked) == (not turn)
        made[:kept] = changed[:kept]


aten: Any = torch.ops.aten


def attended(q: Any, k: Any, v: Any, dy: Any) -> Any:
    """Causal attention and its gradients, as PyTorch traces them on GPUs."""
    forward = aten._scaled_dot_product_efficient_attention
    backward = aten._scaled_dot_product_efficient_attention_backward
    y, sums, *seeds = forward(q, k, v, None, True, 0.0, True)
    wanted = [True, True, True, False]
    return y, *backward(dy, q, k, v, None, y, sums, *seeds, 0.0, wanted, True)[:3]


def test_gradients_of_attention_on_the_gpu() -> None:
    """As they are in 64 bits; tiles are larger than what they are made of, and made twice."""
    torch.manual_seed(1)
    q, k, v, dy = (torch.randn(1, 2, 80, 16) for _ in range(4))
    run, _ = called(attended, q, k, v, dy)
    given = [t.double().requires_grad_() for t in (q, k, v)]
    y = nn.functional.scaled_dot_product_attention(*given, is_causal=True)
    y.backward(dy.double())
    for found, wanted in zip(run(q, k, v, dy), (y.detach(), *(t.grad for t in given)), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-5)


def arena(function: Callable[..., Any], target: str, dtype: Any, queries: int) -> int:
    """Bytes of the arena of ``function`` of so many queries and keys, 8 heads of 64."""
    with FakeTensorMode():
        given = [torch.empty(1, 8, queries, 64, dtype=dtype, device=GPU) for _ in range(4)]
        found = import_traced(make_fx(function)(*given), device="cuda")
    options = Options(target=target)
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "emit")
    program: Program = run_stages(stages, found.graph)
    assert program.placement is not None
    assert isinstance(program.placement.arena, int)
    return program.placement.arena


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "opencl:c"])
@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
def test_memory_grows_with_the_length(target: str, kind: str) -> None:
    """The arena has the result, its products with its gradient and what is of rows, and no scores,
    of which all are as large as 16 results are, or 32."""
    for queries in (512, 1024):
        result = 8 * queries * 64 * 4
        assert arena(attended, target, getattr(torch, kind), queries) < 2.1 * result


def placeholders(*devices: str) -> Any:
    """A graph with an input on each device, as Dynamo marks them."""
    graph = torch.fx.Graph()
    with FakeTensorMode():
        for n, device in enumerate(devices):
            graph.placeholder(f"x{n}").meta["example_value"] = torch.empty(2, device=device)
    graph.output(None)
    return torch.fx.GraphModule(nn.Module(), graph)


def test_where_a_graph_is() -> None:
    assert graph_device(placeholders("cpu", "cpu")) is None
    assert graph_device(placeholders("cpu", "cuda:1", "cuda:1")) == torch.device("cuda:1")
    with pytest.raises(ModelError, match=r"(?s)inputs are on cuda:0 and cuda:1.*one GPU"):
        graph_device(placeholders("cuda:0", "cuda:1"))
    with pytest.raises(ModelError, match=r"(?s)'x0' is on mps.*to a GPU"):
        graph_device(placeholders("mps:0"))


@pytest.mark.parametrize(
    ("asked", "target"),
    [(None, "cuda:1"), ("cuda", "cuda:1"), ("cuda:sm_80", "cuda:sm_80:1"), ("cuda:1", "cuda:1")],
)
def test_what_it_is_compiled_for(asked: str | None, target: str) -> None:
    arguments = {} if asked is None else {"target": asked}
    assert target_on(torch.device("cuda:1"), arguments) == target


def test_amds_gpus_have_nvidias_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyTorch was built for ROCm."""
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    assert target_on(torch.device("cuda:1"), {}) == "amdgpu:1"
    assert target_on(torch.device("cuda:0"), {"target": "amdgpu:gfx942"}) == "amdgpu:gfx942:0"
    with pytest.raises(ModelError, match="not where 'cuda' is"):
        target_on(torch.device("cuda:0"), {"target": "cuda"})


@pytest.mark.parametrize("asked", ["opencl", "native", "cuda:0"])
def test_a_target_whose_tensors_are_elsewhere(asked: str) -> None:
    with pytest.raises(ModelError, match=f"not where {asked!r} is"):
        target_on(torch.device("cuda:1"), {"target": asked})


class Attending(nn.Module):
    """Queries of four heads, of which two have keys and values together."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.into, self.out = nn.Linear(32, 8 * width), nn.Linear(4 * width, 32)

    def forward(self, x: Any, mask: Any) -> Any:
        batch, length, _ = x.shape
        found = self.into(x).view(batch, length, 8, self.width).transpose(1, 2)
        q, k, v = found[:, :4], found[:, 4:6], found[:, 6:]
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        attend = nn.functional.scaled_dot_product_attention
        y = attend(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


@pytest.mark.skipif(bool(missing_driver("opencl")), reason=missing_driver("opencl"))
@pytest.mark.parametrize("masked", [False, True])
def test_a_layer_of_attention_learns_by_another_device(masked: bool) -> None:
    """As in 64 bits: heads in groups, with a causal mask or one that is added."""
    torch.manual_seed(0)
    net, x = Attending(12), torch.randn(2, 71, 32)
    mask = torch.randn(71, 71) if masked else None
    fast = torch.compile(net, backend="modelcc", options={"target": "opencl"})
    fast(x, mask).square().sum().backward()
    found = [parameter.grad.clone().double() for parameter in net.parameters()]
    wide = copy.deepcopy(net).double()
    wide.zero_grad()
    wide(x.double(), None if mask is None else mask.double()).square().sum().backward()
    wanted = [parameter.grad for parameter in wide.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(missing_driver("opencl")), reason=missing_driver("opencl"))
def test_the_hosts_tensors_by_another_device() -> None:
    """Forward and backward by OpenCL."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    x, wanted = torch.randn(2, 3, 4, 4), torch.tensor([1, 4])
    fast = torch.compile(net, backend="modelcc", options={"target": "opencl"})
    gradients = []
    for model in (net, fast):
        net.zero_grad()
        nn.functional.cross_entropy(model(x), wanted).backward()
        gradients.append([parameter.grad.clone() for parameter in net.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x), rtol=1e-5, atol=1e-5)
