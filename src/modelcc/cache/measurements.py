"""Measurements of this machine, in a file in the cache folder, from which ``native`` takes
bandwidths for its model.

The file is JSON, named by the processor's identity.  A damaged one, or one of another processor, is
left unchanged and not used.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from modelcc.artifact.json_values import number_of, object_of, parsed_object, whole_number_of
from modelcc.artifact.replacement import replace_contents
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.runtime.machine import machine_identity
from modelcc.targets.cpu.machine import CpuModel, with_numbers

MACHINES = "machines"
"""Subfolder of the cache folder."""

FORMAT = 1
_AGAIN = "measure again: modelcc machine --measure"
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ModelError)
"""Exceptions on reading a file with other contents."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measurements:
    """``numbers`` for the model of the ``processor`` with this ``identity``; ``facts`` is
    everything measured, for people."""

    identity: str
    processor: str
    numbers: tuple[tuple[str, float], ...]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def measurements_path(folder: Path, identity: str) -> Path:
    """The file of a processor's measurements in the cache's ``folder``."""
    return folder / MACHINES / f"{identity}.json"


def keep_measurements(found: Measurements, folder: Path) -> Path:
    """Stores ``found`` in the cache's ``folder``, replacing earlier measurements; OSError if that
    cannot be written."""
    path = measurements_path(folder, found.identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "format": FORMAT,
        "identity": found.identity,
        "processor": found.processor,
        "numbers": dict(found.numbers),
        "facts": found.facts,
    }
    text = json.dumps({**body, "sha256": _digest(body)}, indent=1)
    replace_contents(path, text + "\n")
    return path


def read_measurements(path: Path, identity: str) -> Measurements:
    """The measurements in a file; :class:`ModelError` if it is damaged, of a newer version, or of a
    processor other than ``identity``, OSError if it cannot be read."""
    try:
        body = parsed_object(path.read_bytes())
        digest = body.pop("sha256")
        if digest != _digest(body):
            raise ValueError(digest)
        newer = whole_number_of(body["format"]) > FORMAT
        found = None if newer else _parsed(body)
    except _DAMAGE as error:
        raise ModelError(f"{path} is damaged", (), _AGAIN) from error
    if found is None:
        message = f"a newer modelcc wrote {path} (format {body['format']}, this one knows {FORMAT})"
        raise ModelError(message, (), f"update modelcc, or {_AGAIN}")
    if found.identity != identity:
        message = f"{path} was measured on another processor ({found.processor})"
        raise ModelError(message, (), _AGAIN)
    return found


def _parsed(body: Mapping[str, object]) -> Measurements:
    if body["format"] != FORMAT:
        raise ValueError(body["format"])
    found = object_of(body["numbers"])
    numbers = tuple(sorted((name, number_of(value)) for name, value in found.items()))
    with_numbers(CpuModel(), numbers)
    identity, processor = str(body["identity"]), str(body["processor"])
    return Measurements(identity, processor, numbers, object_of(body["facts"]))


def with_measurements(options: Options, folder: Path | None) -> Options:
    """``options`` with this machine's measurements, if they are for it and have none of their own;
    the cache's ``folder`` may have none."""
    if folder is None or options.machine or options.cpu not in ("", "native"):
        return options
    found = usable_measurements(folder)
    return options if found is None else replace(options, machine=found.numbers)


def usable_measurements(folder: Path) -> Measurements | None:
    """Those of this machine; None if there are none, with a warning if they cannot be used."""
    identity = machine_identity()
    path = measurements_path(folder, identity)
    try:
        return read_measurements(path, identity) if identity else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ModelError, OSError) as error:
        reason = str(error).replace("\n", ";") if isinstance(error, ModelError) else str(error)
        _LOGGER.warning("what was measured of this machine is not used: %s", reason)
        return None


def _digest(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
