"""Capsules of DLPack against NumPy's: what it makes is read, and it reads what is made."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from modelcc.artifact.manifest import TensorSpec
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, Array, DType
from modelcc.runtime.arguments import as_input
from modelcc.runtime.dlpack import CPU, DlpackTensor, dlpack_kind, make_capsule, read_capsule
from modelcc.runtime.errors import InputError


class Owner:
    """Something that is alive or not."""


class Producer:
    """An array by capsules of ours, each with an owner of its own."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.owners: list[weakref.ref[Owner]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **_: object) -> Any:
        owner = Owner()
        self.owners.append(weakref.ref(owner))
        place = self.array.ctypes.data
        return make_capsule(place, (CPU, 0), self.array.dtype, self.array.shape, owner)


@pytest.mark.parametrize("kind", [BF16, F8E4M3FN, F8E5M2], ids=str)
def test_elements_that_numpy_does_not_know_are_taken(kind: DType) -> None:
    dtype, spec = kind.numpy, TensorSpec("x", kind, (6,))
    x = np.arange(6).astype(dtype)
    found = as_input(spec, Producer(x))
    assert found.dtype == dtype and found.ctypes.data == x.ctypes.data
    np.testing.assert_array_equal(found.view("u1"), x.view("u1"))
    for other in (x.view(f"u{dtype.itemsize}"), x.astype("f4")):
        with pytest.raises(InputError, match=f"expected {dtype} elements.*got {other.dtype}"):
            as_input(spec, Producer(other))


@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i8", "f2", "f4", "f8", "c8"])
def test_numpys_capsules_are_read(dtype: str) -> None:
    x = np.zeros((2, 3, 4), dtype)
    found = read_capsule(x.__dlpack__())
    address = x.ctypes.data
    assert found == DlpackTensor(address, (CPU, 0), dlpack_kind(x.dtype), (2, 3, 4), True)
    part = read_capsule(x[:, 1:].__dlpack__())
    assert (part.address, part.contiguous) == (address + 4 * x.itemsize, False)
    assert read_capsule(x[:1, :, :1].__dlpack__()).contiguous is False
    assert read_capsule(x[1:, 1:2].__dlpack__()).contiguous
    assert read_capsule(x[:, :0].__dlpack__()).contiguous


def test_kinds_of_elements_are_dlpacks() -> None:
    names = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
    kinds = [dlpack_kind(np.dtype(getattr(ml_dtypes, name))) for name in names]
    assert kinds == [(4, 16, 1), (10, 8, 1), (12, 8, 1)]
    with pytest.raises(BufferError, match="no elements of"):
        dlpack_kind(np.dtype("U3"))


def test_numpy_reads_capsules_and_says_when_it_is_done() -> None:
    producer = Producer(np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    found = np.from_dlpack(producer)
    assert np.shares_memory(found, producer.array)
    np.testing.assert_array_equal(found, producer.array)
    (owner,) = producer.owners
    part = found[1]
    del found
    gc.collect()
    assert owner() is not None
    del part
    gc.collect()
    assert owner() is None


def test_a_capsule_that_nobody_takes_goes_with_its_owner() -> None:
    producer = Producer(np.zeros((), np.float32))
    capsule = producer.__dlpack__()
    assert read_capsule(capsule).shape == ()
    (owner,) = producer.owners
    assert owner() is not None
    del capsule
    assert owner() is None
    with pytest.raises(ValueError, match="PyCapsule"):
        read_capsule(7)
