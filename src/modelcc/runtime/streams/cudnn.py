"""Convolutions of images by cuDNN 9, NVIDIA's library (its C interface is that of cudnn_ops.h and
cudnn_cnn.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from modelcc.runtime.errors import RunError
from modelcc.runtime.streams.vendor_library import ELEMENT_BYTES, LibraryCalls, Plans

TENSOR_CORES_TF32, TENSOR_CORES, PLAIN = 0, 1, 3
"""``cudnnMathType_t``: f32 may be rounded to TF32, 16 bits on tensor cores, exact f32."""

CHANNELS_FIRST, CHANNELS_LAST = 0, 1
"""``cudnnTensorFormat_t``."""

TYPES: Mapping[str, int] = MappingProxyType({"f32": 0, "f16": 2, "bf16": 9})
"""``cudnnDataType_t`` of elements."""

_F32 = 0
_CROSS_CORRELATION = 1
_RELU, _IDENTITY = 1, 5
_PROPAGATE_NAN = 1
_DETERMINISTIC = 1
_IMPLICIT_PRECOMPUTED = 1
_PRODUCTS = 0, _IMPLICIT_PRECOMPUTED, 2
"""``cudnnConvolutionFwdAlgo_t`` that multiply the model's operands, without transforms."""

_MOST_ALGORITHMS = 8

_place, _word, _size, _double = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t, ctypes.c_double
SIGNATURES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "cudnnCreate": (_place,),
        "cudnnSetStream": (_place, _place),
        "cudnnCreateTensorDescriptor": (_place,),
        "cudnnSetTensor4dDescriptorEx": (_place, *(_word,) * 9),
        "cudnnCreateFilterDescriptor": (_place,),
        "cudnnSetFilter4dDescriptor": (_place, *(_word,) * 6),
        "cudnnCreateConvolutionDescriptor": (_place,),
        "cudnnSetConvolution2dDescriptor": (_place, *(_word,) * 8),
        "cudnnSetConvolutionMathType": (_place, _word),
        "cudnnSetConvolutionGroupCount": (_place, _word),
        "cudnnCreateActivationDescriptor": (_place,),
        "cudnnSetActivationDescriptor": (_place, _word, _word, _double),
        "cudnnGetConvolutionForwardAlgorithm_v7": (*(_place,) * 5, _word, _place, _place),
        "cudnnConvolutionForward": (*(_place,) * 7, _word, _place, _size, *(_place,) * 3),
        "cudnnConvolutionBiasActivationForward": (
            *(*(_place,) * 7, _word, _place, _size),
            *(_place,) * 8,
        ),
        "cudnnDestroyTensorDescriptor": (_place,),
        "cudnnDestroyFilterDescriptor": (_place,),
        "cudnnDestroyConvolutionDescriptor": (_place,),
        "cudnnDestroyActivationDescriptor": (_place,),
        "cudnnDestroy": (_place,),
    }
)
"""Parameters of the functions that are called; all return a status."""


class AlgorithmPerformance(ctypes.Structure):
    """``cudnnConvolutionFwdAlgoPerf_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int32),
        ("math", ctypes.c_int32),
        ("reserved", ctypes.c_int32 * 3),
    )


@dataclass(frozen=True)
class _CudnnPlan:
    """The descriptors of a convolution, and the algorithm with its workspace in bytes."""

    image: Any
    weights: Any
    bias: Any
    result: Any
    convolution: Any
    activation: Any
    algorithm: int
    workspace: int


class Cudnn:
    """The library on one GPU, whose context is current when it is created and used; ``function``
    gives the addresses of its symbols."""

    def __init__(self, function: Callable[[str], int]) -> None:
        self._call = LibraryCalls("cuDNN", SIGNATURES, function)
        self._handle = self._call.made("cudnnCreate")
        self._stream: int | None = None
        self._plans = Plans(self._forget)

    def close(self) -> None:
        """Frees what the library holds."""
        self._plans.clear()
        self._call("cudnnDestroy", self._handle)

    def ask(
        self, elements: Sequence[str], addresses: Sequence[int], numbers: Sequence[int], stream: int
    ) -> None:
        """Issues a convolution in ``stream``; ``addresses`` are those of the image, the weights,
        the result and the workspace, then of a bias and of an addend; ``numbers`` as
        :mod:`modelcc.targets.cuda.convolutions` lists them."""
        if stream != self._stream:
            self._call("cudnnSetStream", self._handle, stream)
            self._stream = stream
        firsts, room = (*numbers[20:24], *numbers[25:]), numbers[24]
        image, weights, result, workspace, *others = (
            address + ELEMENT_BYTES[name] * first
            for address, name, first in zip(addresses, elements, firsts, strict=True)
        )
        key = elements[0], tuple(numbers[:20]), room, bool(others)
        plan = self._plans.of(key, lambda: self._plan(*key))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        common = (
            self._handle, ctypes.addressof(one), plan.image, image, plan.weights, weights,
            plan.convolution, plan.algorithm, workspace, plan.workspace,
        )  # fmt: skip
        if not others:
            last = ctypes.addressof(zero), plan.result, result
            return self._call("cudnnConvolutionForward", *common, *last)
        bias, *added = others
        scale, behind = (one, added[0]) if added else (zero, result)
        self._call(
            "cudnnConvolutionBiasActivationForward", *common, ctypes.addressof(scale), plan.result,
            behind, plan.bias, bias, plan.activation, plan.result, result,
        )  # fmt: skip

    def _plan(self, element: str, numbers: Sequence[int], room: int, biased: bool) -> _CudnnPlan:
        math, relu, order, n, c, h, w, k, taken, *window = numbers[:11]
        p, q, *steps, groups = numbers[11:]
        call, kind = self._call, TYPES[element]
        weights = call.made("cudnnCreateFilterDescriptor")
        call("cudnnSetFilter4dDescriptor", weights, kind, order, k, taken, *window)
        convolution = call.made("cudnnCreateConvolutionDescriptor")
        call("cudnnSetConvolution2dDescriptor", convolution, *steps, _CROSS_CORRELATION, _F32)
        call("cudnnSetConvolutionMathType", convolution, math)
        call("cudnnSetConvolutionGroupCount", convolution, groups)
        activation = call.made("cudnnCreateActivationDescriptor")
        applied = _RELU if relu else _IDENTITY
        call("cudnnSetActivationDescriptor", activation, applied, _PROPAGATE_NAN, 0.0)
        image, result = (self._tensor(kind, order, *s) for s in ((n, c, h, w), (n, k, p, q)))
        bias = self._tensor(kind, order, 1, k, 1, 1)
        # With a bias but no activation, only one algorithm is supported.
        fitting = (_IMPLICIT_PRECOMPUTED,) if biased and not relu else _PRODUCTS
        found = self._fastest((image, weights, convolution, result), fitting, room)
        if math != PLAIN:
            call("cudnnSetConvolutionMathType", convolution, found.math)
        described = image, weights, bias, result, convolution, activation
        return _CudnnPlan(*described, found.algorithm, found.memory)

    def _tensor(self, kind: int, order: int, n: int, c: int, h: int, w: int) -> ctypes.c_void_p:
        last = order == CHANNELS_LAST
        strides = (1, w * c, c) if last else (h * w, w, 1)
        tensor = self._call.made("cudnnCreateTensorDescriptor")
        sizes = n, c, h, w, c * h * w, *strides
        self._call("cudnnSetTensor4dDescriptorEx", tensor, kind, *sizes)
        return tensor

    def _fastest(
        self, described: Sequence[Any], fitting: Sequence[int], most: int
    ) -> AlgorithmPerformance:
        """The algorithm that the library expects to be fastest, of deterministic ones with a
        workspace of at most ``most`` bytes."""
        found = (AlgorithmPerformance * _MOST_ALGORITHMS)()
        count = ctypes.c_int32()
        self._call(
            "cudnnGetConvolutionForwardAlgorithm_v7", self._handle, *described, _MOST_ALGORITHMS,
            ctypes.addressof(count), ctypes.addressof(found),
        )  # fmt: skip
        for way in found[: count.value]:
            fits = way.algorithm in fitting and way.memory <= most
            if fits and not way.status and way.determinism == _DETERMINISTIC:
                return way
        raise RunError(
            "cuDNN knows no way to compute a convolution of the model in the memory that it has: "
            "compile with --kernels generated"
        )

    def _forget(self, plan: _CudnnPlan) -> None:
        for tensor in (plan.image, plan.bias, plan.result):
            self._call("cudnnDestroyTensorDescriptor", tensor)
        self._call("cudnnDestroyFilterDescriptor", plan.weights)
        self._call("cudnnDestroyConvolutionDescriptor", plan.convolution)
        self._call("cudnnDestroyActivationDescriptor", plan.activation)
