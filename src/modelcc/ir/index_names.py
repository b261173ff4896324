"""How names of symbols are spelled in index text."""

from __future__ import annotations

import json
import re
from typing import Final

RESERVED: Final = frozenset({"floordiv", "ceildiv", "mod", "min", "max"})
"""Words that must be quoted as names of symbols."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def quote_name(name: str) -> str:
    """The name as index text: bare if it is a plain identifier, else a JSON string."""
    if not name:
        raise ValueError("a symbol needs a name, but it is the empty string")
    if _PLAIN_NAME.fullmatch(name) and name not in RESERVED:
        return name
    return json.dumps(name, ensure_ascii=False)
