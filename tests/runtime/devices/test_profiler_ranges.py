"""Ranges for NVIDIA's profilers, with the package and without."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

import pytest

from modelcc.runtime.devices.profiler_ranges import profiler_ranges


def test_steps_are_ranges_of_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    class Package(ModuleType):
        @contextmanager
        def annotate(self, message: str, color: str = "", domain: str = "") -> Generator[None]:
            told.append((message, domain))
            yield
            told.append(("end", message))

    monkeypatch.setitem(sys.modules, "nvtx", Package("nvtx"))
    with profiler_ranges()("k0"):
        told.append(("inside", "k0"))
    assert told == [("k0", "modelcc"), ("inside", "k0"), ("end", "k0")]


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with profiler_ranges()("k0"):
        pass
