"""Human-readable quantities."""

from __future__ import annotations

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def last_letters(name: str, most: int) -> str:
    """The end of a name of more than ``most`` letters, its distinctive part: ``…/Conv``."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def byte_text(size: float) -> str:
    """A number of bytes: ``3.2 MiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_BYTES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_BYTES[unit]}" if unit else f"{int(size)} B"
