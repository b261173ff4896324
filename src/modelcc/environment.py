"""modelcc's environment variables: ``MODELCC_NUM_THREADS``, ``MODELCC_CPU``, ``MODELCC_CACHE_DIR``.

This is the only place that knows them; the outermost functions (the command line and
:mod:`modelcc.api`) pass ``os.environ`` in, everything below takes arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from modelcc.ir.op import ModelError

THREADS = "MODELCC_NUM_THREADS"
CPU = "MODELCC_CPU"
CACHE = "MODELCC_CACHE_DIR"
NOWHERE = Path("/nonexistent/modelcc")
"""The cache of users without a home; whoever wants to write there is told that this fails."""


@dataclass(frozen=True)
class Environment:
    """Threads to use if none are asked for (None: one per core), the processor to compile for if
    none is named (empty: this one), and the folder for caches."""

    threads: int | None
    cache: Path | None
    cpu: str = ""


def read_environment(variables: Mapping[str, str]) -> Environment:
    """What ``variables`` say; :class:`ModelError` if a value makes no sense.

    The cache is ``$MODELCC_CACHE_DIR``, else ``$XDG_CACHE_HOME/modelcc`` or ``~/.cache/modelcc``;
    an empty ``MODELCC_CACHE_DIR`` switches it off.
    """
    threads = _threads(variables.get(THREADS, ""))
    return Environment(threads, _cache(variables), variables.get(CPU, ""))


def _threads(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        hint = "set it to a number of threads, or unset it for one thread per core"
        raise ModelError(f"{THREADS} is {text!r}", (), hint)
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
