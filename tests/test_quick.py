"""The quick slice has something of every package, and leaves out only tests that there are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.quick import LIMIT, SLICE, costly, listed, taken

HERE = Path(__file__).parent
ROOT = HERE.parent


def names_of(path: Path) -> Iterator[str]:
    """Node ids of the tests in a file."""
    place = path.relative_to(ROOT).as_posix()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield f"{place}::{node.name}"


def every_test() -> dict[Path, set[str]]:
    """The tests of each folder that has some."""
    found: dict[Path, set[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        found.setdefault(path.parent, set()).update(names_of(path))
    return found


def test_every_package_is_in_the_slice() -> None:
    found = every_test()
    assert {HERE / name for name in ("ir", "ops", "frontends/onnx", "passes/loop")} <= set(found)
    assert [str(folder) for folder, names in found.items() if names <= costly()] == []


def test_most_tests_are_in_the_slice() -> None:
    every = set().union(*every_test().values())
    assert len(costly()) < len(every) / 3


def test_what_is_left_out_is_there() -> None:
    every = set().union(*every_test().values())
    assert sorted(costly() - every) == [], "no such test: make test-costs"


def test_a_slice_of_every_matrix() -> None:
    cases = [
        "one",
        *(f"small[{i}]" for i in range(SLICE)),
        *(f"large[{i}]" for i in range(2 * SLICE)),
    ]
    chosen = [case for case, among in zip(cases, taken(cases, ()), strict=True) if among]
    assert chosen == ["one", "small[0]", "large[0]", f"large[{SLICE}]"]
    fewer = [
        case
        for case, among in zip(cases, taken(cases, ("one", "small", "large")), strict=True)
        if among
    ]
    assert fewer == ["large[0]"]


def test_a_test_is_as_costly_as_its_longest_case() -> None:
    assert listed({"b[0]": 0.0, "b[1]": 2 * LIMIT, "a": LIMIT, "c": 9 * LIMIT}) == "b\nc\n"


def test_the_target_runs_the_slice() -> None:
    command = (sys.executable, "-m", "pytest", "--quick", "--collect-only", "-q", "tests/ir")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    places = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert {
        f"tests/ir/test_{level}_text.py" for level in ("graph", "tensor", "loop", "program")
    } <= places
    assert "--quick" in (ROOT / "Makefile").read_text("utf-8")
