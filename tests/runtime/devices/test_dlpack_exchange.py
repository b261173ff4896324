"""What DLPack's functions of other libraries tell of their tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from modelcc.runtime.devices.dlpack_exchange import (
    ExchangeReader,
    element_kind,
    element_kinds,
    exchange_of,
)
from modelcc.runtime.dlpack import CPU


def test_tensors_of_pytorch() -> None:
    """Addresses, shapes and types are those that PyTorch says."""
    torch: Any = pytest.importorskip("torch")
    reader = ExchangeReader((CPU, 0))
    exchange = reader.exchange(torch.Tensor)
    assert exchange is not None and reader.exchange(torch.nn.Parameter) is not None
    for name in ("float32", "float16", "int64", "uint8", "bool"):
        kind = element_kind(np.dtype(name))
        for shape in ((), (3,), (2, 1, 5), (0, 4), (1, 1)):
            whole = torch.zeros((4, *shape), dtype=getattr(torch, name))
            for tensor in (whole, whole[1]):
                found = reader.read(exchange, tensor, kind)
                assert found == (tensor.data_ptr(), tuple(tensor.shape))
                assert reader.read(exchange, tensor, kind + 1) is None, "other elements"
    single = torch.zeros(2, 1, 5).transpose(1, 2).transpose(1, 2)
    square, kind = torch.zeros(4, 6), element_kind(np.dtype(np.float32))
    assert reader.read(exchange, single, kind) is not None
    for other in (square.t(), square[:, :3], square.requires_grad_(), square.to_sparse(), 3):
        for _ in range(2):
            assert reader.read(exchange, other, kind) is None
    assert ExchangeReader((CPU, 1)).read(exchange, single, kind) is None, "another device's"


def test_types_without_functions_have_none() -> None:
    class Other:
        """Not a capsule."""

        __dlpack_c_exchange_api__ = 3

    class Later:
        """A table of the next version, with none before."""

        table = ctypes.create_string_buffer(b"\x02", 64)
        __dlpack_c_exchange_api__ = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )(("PyCapsule_New", ctypes.pythonapi))(
            ctypes.addressof(table), name := b"dlpack_exchange_api", None
        )
        kept = name

    assert [exchange_of(kind) for kind in (int, np.ndarray, Other, Later)] == [None] * 4
    assert element_kinds([np.dtype(np.float32), np.dtype("S3")]) is None
