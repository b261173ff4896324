"""Boxes that are copied by loads and stores."""

from __future__ import annotations

import inspect
import re
import textwrap

from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.expand_tiles import expand_tiles


def test_the_example() -> None:
    """What products of tiles become, ``tests/targets/isa`` runs."""
    doc = inspect.getdoc(expand_tiles) or ""
    texts = re.findall(r"^(?:before|after)::\n\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    before, after = (parse_function(textwrap.dedent(text)) for text in texts)
    verify_function(before)
    assert print_function(expand_tiles(before)) == print_function(after)
    verify_function(after)
