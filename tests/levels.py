"""``python -m tests.levels``: the processors this machine can run code for, one on each line."""

from __future__ import annotations

from modelcc.targets.native.host import BASELINES
from modelcc.targets.native.toolchain import host_machine


def runnable() -> tuple[str, ...]:
    """Levels of the x86-64 psABI that this machine has, and ``native``."""
    host = host_machine()
    here = host.architecture == "x86_64"
    levels = (name for name, b in BASELINES.items() if here and {*b.features} <= {*host.features})
    return (*levels, "native")


if __name__ == "__main__":
    print("\n".join(runnable()))
