"""Strings as 64-bit handles: equal strings have equal handles, the only property code relies on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.types import Array


class Texts:
    """A table of strings and their handles.  ``known`` have handles 0, 1, …"""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = {text: handle for handle, text in enumerate(known)}
        self._texts = list(known)

    def for_call(self) -> Texts:
        """A table for one call, to which its arguments' strings are added; this one is
        unchanged."""
        copy = Texts(())
        copy._known, copy._texts = dict(self._known), list(self._texts)
        return copy

    def handles(self, array: Array) -> NDArray[np.int64]:
        """The handles of an array of strings."""
        result = np.empty(array.shape, np.int64)
        result.reshape(-1)[:] = [self._handle(t) for t in array.reshape(-1).tolist()]
        return result

    def _handle(self, text: object) -> int:
        plain = text.decode() if isinstance(text, bytes) else str(text)
        handle = self._known.setdefault(plain, len(self._texts))
        if handle == len(self._texts):
            self._texts.append(plain)
        return handle

    def texts(self, handles: Array) -> Array:
        """The strings of ``handles``, as an array of objects."""
        result = np.empty(handles.shape, object)
        result.reshape(-1)[:] = [self._texts[handle] for handle in handles.reshape(-1).tolist()]
        return result
