"""modelcc's environment variables: ``MODELCC_NUM_THREADS``, ``MODELCC_JOBS``, ``MODELCC_CPU``,
``MODELCC_CACHE_DIR``.

This is the only place that knows them; the outermost functions (the command line and
:mod:`modelcc.api`) pass ``os.environ`` in, everything below takes arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from modelcc.ir.errors import ModelError

THREADS = "MODELCC_NUM_THREADS"
JOBS = "MODELCC_JOBS"
CPU = "MODELCC_CPU"
CACHE = "MODELCC_CACHE_DIR"
NOWHERE = Path("/nonexistent/modelcc")
"""The cache of users without a home; whoever wants to write there is told that this fails."""


@dataclass(frozen=True)
class Environment:
    """Threads to use if none are asked for (None: one per core), the processor to compile for if
    none is named (empty: this one), the folder for caches, and the processes that compile (None:
    one per core)."""

    threads: int | None
    cache: Path | None
    cpu: str = ""
    jobs: int | None = None


def read_environment(variables: Mapping[str, str]) -> Environment:
    """What ``variables`` say; :class:`ModelError` if a value makes no sense.

    The cache is ``$MODELCC_CACHE_DIR``, else ``$XDG_CACHE_HOME/modelcc`` or ``~/.cache/modelcc``;
    an empty ``MODELCC_CACHE_DIR`` switches it off.
    """
    threads = _count(variables, THREADS, "thread")
    jobs = _count(variables, JOBS, "process")
    return Environment(threads, _cache(variables), variables.get(CPU, ""), jobs)


def _count(variables: Mapping[str, str], name: str, what: str) -> int | None:
    text = variables.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        hint = f"set it to a number from 1 upwards, or unset it for one {what} per core"
        raise ModelError(f"{name} is {text!r}", (), hint)
    return int(text)


def _cache(variables: Mapping[str, str]) -> Path | None:
    given = variables.get(CACHE)
    if given is not None:
        return Path(given).expanduser() if given else None
    home = variables.get("XDG_CACHE_HOME", "")
    if Path(home).is_absolute():  # others are to be ignored, the standard says
        return Path(home) / "modelcc"
    try:
        return Path.home().absolute() / ".cache" / "modelcc"
    except RuntimeError:  # nobody has a home here
        return NOWHERE
