"""The ONNX standard's own cases of single operators, module by module: all take seconds to make."""

from __future__ import annotations

import pkgutil
import sys
import warnings
from functools import cache
from importlib import import_module

import pytest
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase

MODULES = tuple(
    found.name.removeprefix(f"{node.__name__}.")
    for found in pkgutil.walk_packages(node.__path__, f"{node.__name__}.")
    if not (found.ispkg or found.name.rpartition(".")[2].startswith("_"))
)
"""Where the suite makes its cases, an operator each."""


@cache
def cases_of(module: str) -> tuple[TestCase, ...]:
    """The cases of one of ``MODULES``, which makes them when it is imported."""
    name, made = f"{node.__name__}.{module}", list[TestCase]()
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # making the cases overflows on purpose
        patch.setattr(node, "_NodeTestCases", made)
        patch.setattr(node, "_existing_names", {})
        patch.delitem(sys.modules, name, raising=False)
        import_module(name)
        del sys.modules[name]  # as it was, for whoever takes all cases from the package
    return tuple(made)
