"""Functions by ``torch.compile`` in tests, and what becomes of their graphs."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch.dynamo import BackendRequest, compiled_by  # noqa: E402
from modelcc.torch.partition import Parted  # noqa: E402


def compiled(model: Any, seen: list[tuple[str, Parted]] | None = None, **options: Any) -> Any:
    """``model`` by modelcc, without a cache; ``seen`` gets what became of each graph."""

    def note(kind: str, parts: Parted) -> None:
        if seen is not None:
            seen.append((kind, parts))

    request = BackendRequest({"threads": 1, "cache": None}, observer=note)
    own = {"backend": lambda module, examples: compiled_by(request, module, examples)}
    return torch.compile(model, **own, **options)
