"""The texts of delivered files: templates with names in ``${braces}``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from string import Template

from modelcc.targets.c.code import folded
from modelcc.targets.c.names import comment


def filled(template: str, **values: str) -> str:
    """The text of ``template`` with names replaced by ``values``.

    A value of several lines is alone on its line; an empty one removes that line.
    """
    text = files("modelcc.targets.c.delivery").joinpath("templates", template).read_text("utf-8")
    for name, value in values.items():
        if not value:
            text = text.replace(f"${{{name}}}\n", "")
    return re.sub(r"\n{3,}", "\n\n", Template(text).substitute(values))


def commented(lines: Iterable[str]) -> str:
    """Lines of a C comment, without its delimiters."""
    rows: list[str] = []
    for line in lines:
        words = line.lstrip(" ")
        rows += folded(comment(words), " * " + " " * (len(line) - len(words)))
    return "\n".join(row.rstrip() for row in rows)


def inner_lines(text: str) -> list[str]:
    """A statement inside a function, folded, to be indented later."""
    return [line[4:] for line in folded(text, " " * 4)]


def indented(lines: Iterable[str], by: int = 4) -> str:
    """Lines indented one level deeper."""
    return "\n".join(" " * by + line if line else "" for line in lines)
