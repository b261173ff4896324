"""Drivers of devices that targets run on: which of them this machine lacks."""

from __future__ import annotations

from functools import cache

from modelcc.runtime.devices.device import KNOWN, open_device
from modelcc.runtime.errors import LoadError


@cache
def missing_driver(target: str) -> str:
    """Why nothing can run on ``target`` here; empty if something can."""
    if target not in KNOWN:
        return ""
    try:
        open_device(target, 0)
    except LoadError as error:
        return str(error)
    return ""
