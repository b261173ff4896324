"""Mutations of compiled models: of bytes, and of the manifest with recomputed checksums.

Object files are never mutated with recomputed checksums: that would be writing code, which loading
an artifact executes.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from fuzz.corruption import corrupted
from modelcc.artifact.archive import archive_pieces

Members = dict[str, bytes]

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 63, 2**31, 2**63, 10**30, 1.5, float("nan"), "", "x", "n // 0",
    "(" * 5000 + "n" + ")" * 5000, "9" * 5000, "../../x", "\0", "\ud800x", [], [[]], {}, {"x": []},
)  # fmt: skip
"""Replacement values for parts of a manifest."""


def damaged(data: bytes, random: Random) -> tuple[str, bytes]:
    """The mutation of the artifact ``data``, and the resulting file."""
    if random.random() < 0.5:
        return corrupted(data, random)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    change = random.choice(CHANGES)
    changed = change(members, random)
    return change.__name__, b"".join(archive_pieces([(n, [c]) for n, c in changed.items()]))


def replace_value(members: Members, random: Random) -> Members:
    """Replaces a part of the manifest by another value."""
    return _edited(members, random, lambda holder, key: holder.__setitem__(key, _value(random)))


def remove_value(members: Members, random: Random) -> Members:
    """Removes a part of the manifest."""
    return _edited(members, random, lambda holder, key: holder.__delitem__(key))


def repeat_value(members: Members, random: Random) -> Members:
    """Duplicates a part of the manifest, or renames it."""

    def repeat(holder: Any, key: Any) -> None:
        if isinstance(holder, list):
            holder.insert(random.randrange(len(holder) + 1), holder[key])
        else:
            holder[random.choice([*holder])] = holder[key]

    return _edited(members, random, repeat)


def shift_number(members: Members, random: Random) -> Members:
    """Changes a number of the manifest slightly."""

    def shift(holder: Any, key: Any) -> None:
        if isinstance(holder[key], int):
            holder[key] += random.choice((-64, -4, -1, 1, 4, 64))

    return _edited(members, random, shift)


def corrupt_text(members: Members, random: Random) -> Members:
    """Corrupts bytes of the manifest or a source."""
    name = random.choice([n for n in members if n.endswith(".json")])
    return {**members, name: corrupted(members[name], random)[1]}


def resize_constants(members: Members, random: Random) -> Members:
    """More or fewer bytes of constants than the manifest declares."""
    size = max(0, len(members["constants"]) + random.choice((-64, -1, 1, 64, 4096)))
    return {**members, "constants": members["constants"][:size].ljust(size, b"\0")}


def remove_member(members: Members, random: Random) -> Members:
    """Removes a member of the archive."""
    gone = random.choice([*members])
    return {name: content for name, content in members.items() if name != gone}


def shuffle_members(members: Members, random: Random) -> Members:
    """Reorders the members, and swaps some of them."""
    names = [*members]
    random.shuffle(names)
    return {name: members[name] for name in names}


def add_member(members: Members, random: Random) -> Members:
    """Adds an unexpected member."""
    name = random.choice(("objects/more.o", "sources/more", "../more", "", "more", "ü\0"))
    return {**members, name: random.randbytes(99)}


CHANGES: tuple[Callable[[Members, Random], Mapping[str, bytes]], ...] = (
    replace_value, replace_value, remove_value, repeat_value, shift_number, shift_number,
    corrupt_text, resize_constants, remove_member, shuffle_members, add_member,
)  # fmt: skip


def _value(random: Random) -> Any:
    return random.choice(VALUES)


def _edited(members: Members, random: Random, edit: Callable[[Any, Any], None]) -> Members:
    """The members with a random part of the manifest, at any depth, changed by ``edit``."""
    manifest = json.loads(members["manifest.json"])
    edit(*random.choice(_places(manifest)))
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    return {**members, "manifest.json": text.encode(errors="surrogatepass")}


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Containers and keys of all parts of ``value``; inner ones are as likely as outer ones."""
    keys = [*value] if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found
