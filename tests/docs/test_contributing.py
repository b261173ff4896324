"""The recipes of CONTRIBUTING.md work: each is followed in a copy of the tree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TREE = (
    "src", "tests", "docs", "examples", "tools", "pyproject.toml", "README.md", "LICENSE",
    "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks",
)  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("__pycache__", "models", "results")


@dataclass(frozen=True)
class Block:
    """A fenced block: a ``diff`` of a file, the text of a new one, or commands (``sh``)."""

    kind: str
    path: str
    text: str


@dataclass(frozen=True)
class Recipe:
    """A section that says what to write and what to run then."""

    name: str
    blocks: tuple[Block, ...]


def recipes(page: str) -> tuple[Recipe, ...]:
    """The sections with blocks, in order; each takes for granted those before it."""
    parts = (section.partition("\n") for section in page.split("\n### ")[1:])
    found = (Recipe(n, tuple(Block(*b) for b in BLOCK.findall(text))) for n, _, text in parts)
    return tuple(recipe for recipe in found if recipe.blocks)


def patched(source: str, diff: str) -> str:
    """``source`` with the hunks of ``diff`` (between lines ``@@``), each of which fits once."""
    for hunk in re.split(r"^@@$\n", diff, flags=re.MULTILINE):
        lines = [(line[:1] or " ", line[1:]) for line in hunk.splitlines()]
        before, after = (
            "".join(f"{text}\n" for sign, text in lines if sign in signs) for signs in (" -", " +")
        )
        assert source.count(before) == 1, f"not found once:\n{before}"
        source = source.replace(before, after)
    return source


def write(recipe: Recipe, tree: Path) -> None:
    for block in recipe.blocks:
        path = tree / block.path
        if block.kind == "diff":
            path.write_text(patched(path.read_text("utf-8"), block.text), "utf-8")
        elif block.kind != "sh":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")


def commands(recipe: Recipe) -> list[list[str]]:
    lines = [line for b in recipe.blocks if b.kind == "sh" for line in b.text.splitlines()]
    return [shlex.split(line) for line in lines]


def copy_of_the_tree(folder: Path) -> Path:
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=LEFT_OUT)
        else:
            shutil.copy(source, folder / name)
    return folder


RECIPES = recipes(PAGE)


@pytest.mark.parametrize("number", range(len(RECIPES)), ids=lambda n: RECIPES[n].name)
def test_recipes_work(number: int, tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    for recipe in RECIPES[: number + 1]:
        write(recipe, tree)
    path = os.pathsep.join((str(tree / "src"), str(tree)))
    for program, *arguments in commands(RECIPES[number]):
        assert program == "python"
        command = (sys.executable, *arguments)
        environment = os.environ | {"PYTHONPATH": path, "MODELCC_CACHE_DIR": ""}
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        assert not done.returncode, f"{shlex.join(arguments)}\n{done.stdout}{done.stderr}"


def test_every_recipe_writes_something_and_runs_tests() -> None:
    assert len(RECIPES) >= 4
    for recipe in RECIPES:
        assert any(block.path for block in recipe.blocks), recipe.name
        assert any("pytest" in command for command in commands(recipe)), recipe.name


def test_a_diff_that_does_not_fit_is_refused() -> None:
    assert patched("a\nb\nc\n", " a\n-b\n+d\n@@\n c\n+e\n") == "a\nd\nc\ne\n"
    with pytest.raises(AssertionError, match="not found once"):
        patched("a\nb\n", " b\n c\n+d\n")
    with pytest.raises(AssertionError, match="not found once"):
        patched("a\na\n", " a\n+d\n")
