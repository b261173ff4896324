"""The invariants of ARCHITECTURE.md that concern the sources as a whole."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import modelcc

SOURCE = Path(modelcc.__file__).parent
ROOT = Path(__file__).parent.parent

LAYERS = (
    ("ir",),
    ("ops",),
    ("kit",),
    ("frontends", "exporters", "train", "passes"),
    ("schedule",),
    ("targets",),
    ("tune",),
    ("driver",),
    ("cli",),
    ("modelcc",),
)
"""Lowest first.  A layer imports itself and those below; siblings never import each other."""

ARTIFACT_SEES = (
    "ir.errors",
    "ir.types",
    "ir.index",
    "ir.condition",
    "ir.structure",
    "ir.call_form",
)
RUNTIME_SEES = (*ARTIFACT_SEES, "artifact", "runtime")
"""Prefixes: the index algebra is a family of modules."""

READS_THE_ENVIRONMENT = {"modelcc.cli.main", "modelcc.api"}
LATE_IMPORTS: dict[str, str] = {}
"""Function with an import inside → why."""

UNMIRRORED = {
    "dialects": "of another package",
    "emulated": "on other processors",
    "errors": "messages, whoever writes them",
    "amd_emulator": "a GPU of AMD's, where there is none",
    "ptx_emulator": "a GPU, where there is none",
    "typing": "programs of users",
}
"""Folders of tests that mirror no folder → what their tests are of."""

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
"""Longer than the measure → why.  An entry that is no longer needed fails."""
LINES_PER_FILE, LINES_PER_FUNCTION = 500, 60

MACHINE = re.compile(
    r"(^|_)(lanes?|blocks?|widths|vectors?|registers?|cache|l[123]|fmas?|near|far|threads|parallel|shares|quads?)(_|$)",
    re.IGNORECASE,
)
"""Parts of names that numbers of a machine have."""

MACHINE_NUMBERS = {
    "modelcc.frontends.onnx.number_lists.BLOCK": "bytes of a file that are read at a time",
    "modelcc.frontends.kit.slicing.FAR": "an index, beyond every end",
}
"""Numbers above the targets that are named like a machine's → why.  A stale entry fails."""

_LEVELS = "one meaning on several levels of the compiler"
_PRINTERS = "one part of a printer, for LLVM and for C"
SHARED_NAMES: dict[str, str] = {
    **dict.fromkeys(("Bitcast", "Cast", "If", "ReadSize", "Select"), _LEVELS),
    **dict.fromkeys(("ArithmeticCode", "Code", "EmitOptions"), _PRINTERS),
    **dict.fromkeys(("ExpressionCode", "IndexCode", "MemoryCode", "StatementCode"), _PRINTERS),
    **dict.fromkeys(("LibraryCallCode", "StepsCode"), _PRINTERS),
    "Checkpoint": "what a backward pass computes again, and a file of a training run",
    "Constant": "data of a program, and a learning rate that stays",
    "Graph": "the compiler's, and what users declare",
    "Tensor": "of a delivered model, and what users compute with",
}
"""Classes that several modules define → why.  A stale entry fails."""

VAGUE = {"utils", "util", "common", "helpers", "helper", "misc", "base_utils"}


@dataclass(frozen=True)
class Import:
    """``importer`` imports ``imported`` (module names) on ``line``."""

    importer: str
    imported: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> dict[str, tuple[Path, ast.Module]]:
    files = sorted(SOURCE.rglob("*.py"))
    return {module_name(p): (p, ast.parse(p.read_text("utf-8"))) for p in files}


@cache
def imports() -> tuple[Import, ...]:
    """Every import of a modelcc module in the sources, inside functions and for types too."""
    return tuple(i for name, (_, tree) in trees().items() for i in _imports(name, tree, ""))


def _imports(module: str, node: ast.AST, function: str) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names):
                for alias in names:
                    yield Import(module, alias.name, child.lineno, function)
            case ast.ImportFrom(module=source, names=names, level=level):
                assert level == 0, f"{module}:{child.lineno} is a relative import"
                for alias in names:
                    submodule = f"{source}.{alias.name}"
                    target = submodule if submodule in trees() else str(source)
                    yield Import(module, target, child.lineno, function)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _imports(module, child, f"{module}.{name}")
            case _:
                yield from _imports(module, child, function)


def ours() -> list[Import]:
    return [i for i in imports() if i.imported.split(".")[0] == "modelcc"]


def layer(module: str) -> str:
    """The layer of a module; those directly in the package are the driver's."""
    parts = module.split(".")
    if len(parts) == 1:
        return "modelcc"
    if parts == ["modelcc", "__main__"]:
        return "cli"
    if parts[1:3] == ["frontends", "kit"]:
        return "kit"
    named = {name for names in LAYERS for name in names} | {"artifact", "runtime"}
    return parts[1] if parts[1] in named else "driver"


def rank(name: str) -> int:
    return next(n for n, names in enumerate(LAYERS) if name in names)


def test_there_is_something_to_walk() -> None:
    assert "modelcc.ir.graph" in trees()
    assert any(i.importer == "modelcc.ir.graph" for i in ours())


def test_layers_import_downwards_only() -> None:
    upward = [
        str(i)
        for i in ours()
        if i.imported != "modelcc"  # the version, nothing else is defined there
        and {layer(i.importer), layer(i.imported)}.isdisjoint({"artifact", "runtime"})
        and layer(i.importer) != layer(i.imported)
        and rank(layer(i.importer)) <= rank(layer(i.imported))
    ]
    assert upward == []


def frontend(module: str) -> str:
    """The frontend of a module, ``kit`` for what all of them share; else nothing."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["frontends"] and len(parts) > 2 else ""


def test_frontends_share_the_kit_alone() -> None:
    pairs = {(str(i), frontend(i.importer), frontend(i.imported)) for i in ours()}
    assert [text for text, one, other in pairs if one and other not in ("", "kit", one)] == []
    assert any(one == "onnx" and other == "kit" for _, one, other in pairs)


def test_only_the_command_line_asks_for_the_version() -> None:
    assert {i.importer for i in ours() if i.imported == "modelcc"} <= {"modelcc.cli.main"}


def _numbers(module: str, tree: ast.Module) -> Iterator[str]:
    """Constants of the module and defaults of its classes that are numbers other than 0 and 1."""
    bodies = [tree.body, *(n.body for n in tree.body if isinstance(n, ast.ClassDef))]
    for statement in (s for body in bodies for s in body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        values = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
        if any(type(v) in (int, float) and v not in (0, 1) for v in values):
            yield f"{module}.{name}"


def test_no_number_of_a_machine_above_the_targets() -> None:
    above = {"ir", "ops", "kit", "frontends", "exporters", "train", "passes"}
    found = {
        name
        for module, (_, tree) in trees().items()
        if layer(module) in above
        for name in _numbers(module, tree)
        if MACHINE.search(name.rpartition(".")[2])
    }
    assert found == set(MACHINE_NUMBERS)


def test_targets_never_import_ops() -> None:
    found = [str(i) for i in ours() if (layer(i.importer), layer(i.imported)) == ("targets", "ops")]
    assert found == []


@pytest.mark.parametrize(
    ("part", "sees"), [("artifact", (*ARTIFACT_SEES, "artifact")), ("runtime", RUNTIME_SEES)]
)
def test_runtime_and_artifact_do_without_the_compiler(part: str, sees: tuple[str, ...]) -> None:
    allowed = tuple(f"modelcc.{name}" for name in sees)
    found = [str(i) for i in ours() if layer(i.importer) == part]
    assert [text for text in found if not text.split(" imports ")[1].startswith(allowed)] == []


def test_the_lower_layers_do_not_import_runtime_or_artifact() -> None:
    below = ("ir", "ops", "kit", "frontends", "exporters", "train", "passes", "schedule")
    outer = ("artifact", "runtime")
    assert [
        str(i) for i in ours() if layer(i.importer) in below and layer(i.imported) in outer
    ] == []


def test_no_import_cycles() -> None:
    """Imports for type checkers count."""
    edges: dict[str, list[str]] = {}
    for i in ours():
        if i.imported in trees():
            edges.setdefault(i.importer, []).append(i.imported)
    assert _cycle(edges) == []


def _cycle(edges: dict[str, list[str]]) -> list[str]:
    """Modules of one import cycle, in order."""
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        path.append(module)
        found = next((c for m in edges.get(module, ()) if (c := visit(m))), [])
        path.pop()
        done.add(module)
        return found

    return next((c for module in sorted(edges) if (c := visit(module))), [])


def test_the_search_for_cycles_finds_one() -> None:
    assert _cycle({"a": ["b"], "b": ["c", "d"], "d": ["b"]}) == ["b", "d", "b"]


def test_no_import_inside_functions() -> None:
    late = {i.function for i in imports() if i.function}
    assert late == set(LATE_IMPORTS)


def test_frameworks_are_imported_in_their_frontend_only() -> None:
    others = ("modelcc.bench.onnxruntime_peer", "modelcc.onnx_backend")
    schema = ("modelcc.frontends.tflite.reading", "modelcc.frontends.tflite.tables")
    stablehlo = ("modelcc.frontends.stablehlo", "modelcc.jax")
    homes = {
        "onnx": ("modelcc.frontends.onnx", "modelcc.exporters.onnx", *others),
        "torch": ("modelcc.frontends.torch", "modelcc.torch"),
        "jax": stablehlo,
        "jaxlib": stablehlo,
        **dict.fromkeys(("flatbuffers", "tflite"), schema),
    }
    found = [
        str(i)
        for i in imports()
        if (home := homes.get(i.imported.split(".")[0])) and not i.importer.startswith(home)
    ]
    assert found == []


def test_only_the_entrances_read_the_environment() -> None:
    readers = {
        name
        for name, (_, tree) in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert readers <= READS_THE_ENVIRONMENT


def test_no_global_statements_and_no_vague_names() -> None:
    statements = [
        name
        for name, (_, tree) in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]
    assert statements == []
    assert [p.name for p, _ in trees().values() if p.stem in VAGUE] == []


def test_files_and_functions_are_short() -> None:
    files: set[str] = set()
    functions: set[str] = set()
    for name, (path, tree) in trees().items():
        if len(path.read_text("utf-8").splitlines()) > LINES_PER_FILE:
            files.add(path.relative_to(SOURCE).as_posix())
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (node.end_lineno or 0) - node.lineno + 1 > LINES_PER_FUNCTION:
                functions.add(f"{name}.{node.name}")
    assert files == set(LONG_FILES)
    assert functions == set(LONG_FUNCTIONS)


def test_no_class_name_has_two_meanings() -> None:
    """Layers have PyTorch's names, whatever the ops are called that they are made of."""
    names = Counter(
        node.name
        for module, (_, tree) in trees().items()
        if not module.startswith("modelcc.nn.")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set(SHARED_NAMES)


def test_every_module_says_what_it_is() -> None:
    silent = [
        name
        for name, (path, tree) in trees().items()
        if tree.body and path.name != "__init__.py" and not ast.get_docstring(tree)
    ]
    assert silent == []


# --- the installed package -------------------------------------------------------------------


def python(code: str) -> str:
    """Output of ``code`` in a fresh interpreter."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def modules_after(statement: str) -> set[str]:
    return set(python(f"{statement}\nimport sys\nprint(*sys.modules)").split())


def test_importing_modelcc_is_light() -> None:
    loaded = modules_after("import modelcc")
    assert loaded.isdisjoint({"onnx", "llvmlite", "torch", "rich", "click", "modelcc.ops"})


def test_importing_modelcc_takes_less_than_a_third_of_a_second() -> None:
    """Processor time, since the machine may be busy; the best of a few."""
    code = "import time as t; s = t.process_time(); import modelcc; print(t.process_time() - s)"
    assert min(float(python(code)) for _ in range(3)) < 0.3


def test_the_runtime_does_not_load_the_compiler() -> None:
    loaded = modules_after("import modelcc.runtime.loader, modelcc.runtime.pool")
    assert "modelcc.runtime.loader" in loaded
    compiler = {"onnx", "modelcc.ir.graph", "modelcc.ir.op", "modelcc.targets"}
    assert loaded.isdisjoint(compiler)
    assert not any(
        m.startswith(("modelcc.ops", "modelcc.passes", "modelcc.targets")) for m in loaded
    )


def test_all_names_what_there_is() -> None:
    names: list[str] = getattr(modelcc, "__all__", [])
    assert names == sorted(names)
    assert all(hasattr(modelcc, name) for name in names)


def test_the_package_is_typed_and_licensed() -> None:
    assert (SOURCE / "py.typed").is_file()
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["license"] == "Apache-2.0"


def test_tests_mirror_the_sources() -> None:
    """Of the package, and of the folders beside it."""
    tests = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("*.py")}
    mirrored = {p for p in tests if p.parts and p.parts[0] not in UNMIRRORED}
    assert [str(p) for p in mirrored if not ((SOURCE / p).is_dir() or (ROOT / p).is_dir())] == []
    assert {p.parts[0] for p in tests if p.parts} >= set(UNMIRRORED)


def test_the_map_names_every_package_and_every_invariant_its_test() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    packages = {p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("__init__.py")} - {
        "."
    }
    assert [p for p in sorted(packages) if f"`{p}/`" not in text] == []
    tests = [line for line in text.splitlines() if line[:1].isdigit()]
    assert tests
    for line in tests:
        named = [
            word.strip("`()., ") for word in line.split() if word.strip("`(").startswith("tests/")
        ]
        assert named, f"no test is named: {line}"
        for place in named:
            path, _, function = place.partition("::")
            assert (ROOT / path).exists(), place
            assert not function or f"def {function}" in (ROOT / path).read_text("utf-8"), place
