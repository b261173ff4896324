"""``pytest --cpu x86-64-v2``: all tests compile for this processor instead of the machine's own."""

from __future__ import annotations

import os

import pytest

from modelcc.environment import CPU, JOBS


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = f"processor that tests compile for, as {CPU} (default: that, or this machine's)"
    parser.addoption("--cpu", default="", metavar="NAME", help=help_)
    parser.addoption("--all-ops", action="store_true", help="matrices of which a share is tested")


def pytest_configure(config: pytest.Config) -> None:
    """For this process, whose tests ask for it, and for those that tests start."""
    # Tests themselves run in several processes; each compiler's own would start them thousands of
    # times.
    os.environ.setdefault(JOBS, "1")
    chosen = config.getoption("--cpu")
    if chosen:
        os.environ[CPU] = str(chosen)
