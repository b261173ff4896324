"""``pytest --target c --cpu x86-64-v2``: what tests compile for, instead of the default.

``pytest --all-ops``: all of the large matrices, of which a run has a share, ``--turn 1`` another
one (``shares.py``).

``pytest --every 3``: a third of all cases, ``--turn 1`` another one.

``pytest --quick``: a slice of all tests (``quick.py``).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from modelcc.environment import CPU, JOBS
from modelcc.targets.registry import target_names
from tests.axis import parameters
from tests.packages import described
from tests.quick import Costs, costly, taken
from tests.shares import MARKER, Turn, left_out, thinned, turn_of


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = f"processor that tests compile for, as {CPU} (default: that, or this machine's)"
    parser.addoption("--cpu", default="", metavar="NAME", help=help_)
    parser.addoption("--all-ops", action="store_true", help="matrices of which a share is tested")
    help_ = "another share of these matrices, and of --every; every second costly test"
    parser.addoption("--turn", type=int, metavar="N", help=help_)
    help_ = "one case of so many"
    parser.addoption("--every", type=int, default=1, metavar="N", help=help_)
    parser.addoption(
        "--quick", action="store_true", help="a slice of every test, without slow ones"
    )
    help_ = "measure such a slice of all tests, and write down which are slow"
    parser.addoption("--costs", action="store_true", help=help_)
    help_ = "target of the tests marked so, instead of their own ones; may be given several times"
    parser.addoption("--target", action="append", default=[], metavar="NAME", help=help_)
    help_ = "folder of a package with a target that is not installed, to be found all the same"
    parser.addoption("--target-package", action="append", default=[], metavar="PATH", help=help_)
    help_ = "folder of CMSIS-NN's sources, for the tests that build them"
    parser.addoption("--cmsis-nn", default="", metavar="PATH", help=help_)


# How long an example takes says how busy the machine is, and how many were passed over in one run
# what was drawn, not whether it is right.
_BY_CHANCE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
settings.register_profile("all", deadline=None, suppress_health_check=_BY_CHANCE)
# A share is the same twice, so that what fails is of the change; --all-ops draws new examples.
settings.register_profile(
    "share", settings.get_profile("all"), max_examples=30, derandomize=True, database=None
)


def pytest_configure(config: pytest.Config) -> None:
    """For this process, whose tests ask for it, and for those that tests start."""
    settings.load_profile("all" if config.getoption("--all-ops") else "share")
    config.addinivalue_line("markers", MARKER)
    if config.getoption("--costs"):
        config.pluginmanager.register(Costs())
    # Tests themselves run in several processes; each compiler's own would start them thousands of
    # times.
    os.environ.setdefault(JOBS, "1")
    chosen = config.getoption("--cpu")
    if chosen:
        os.environ[CPU] = str(chosen)
    config.addinivalue_line("markers", "targets(*names): runs on these, or on those of --target")
    for package in config.getoption("--target-package") or []:
        folder = TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        sys.path[:0] = described(Path(package), Path(folder.name))
    unknown = [n for n in config.getoption("--target") or [] if n not in target_names()]
    if unknown:
        known = ", ".join(target_names())
        raise pytest.UsageError(f"--target: there is no target {unknown[0]!r}, there is {known}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("targets")
    if mark is not None:
        names = metafunc.config.getoption("--target") or mark.args
        metafunc.parametrize("target", parameters(names, metafunc.function.__name__))


@pytest.hookimpl(tryfirst=True)  # before -k leaves out some
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    singles = config.getoption("--turn") is not None
    _leave_out(config, items, left_out(items, turn_of(config), costly(), singles))
    every, turn = (int(config.getoption(name) or 0) for name in ("--every", "--turn"))
    among = set(thinned(items, every, turn))
    _leave_out(config, items, [item for item in items if item not in among])
    if config.getoption("--quick") or config.getoption("--costs"):
        without = () if config.getoption("--costs") else costly()
        chosen = taken([item.nodeid for item in items], without)
        pairs = zip(items, chosen, strict=True)
        _leave_out(config, items, [item for item, taken in pairs if not taken])


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """The garbage collector need not look through tens of thousands of tests again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor when they run."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before the fixtures of a module
def pytest_runtest_setup() -> None:
    """PyTorch's numbers are the same in each run, whichever tests a process has."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], left: Sequence[pytest.Item]
) -> None:
    config.hook.pytest_deselected(items=left)
    without = set(left)
    items[:] = [item for item in items if item not in without]


@pytest.fixture
def cmsis_nn(request: pytest.FixtureRequest) -> str:
    """The folder of CMSIS-NN's sources."""
    path = str(request.config.getoption("--cmsis-nn"))
    if not path:
        pytest.skip("--cmsis-nn does not tell where that is")
    return path


@pytest.fixture
def turn(request: pytest.FixtureRequest) -> Turn:
    """What share of many cases a test that goes through them is to take."""
    return turn_of(request.config)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """PyTorch's compiler without graphs of other tests, and the same random numbers every time."""
    torch: Any = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
