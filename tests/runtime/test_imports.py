"""The runtime needs no compiler."""

import subprocess
import sys

COMPILER = ("ops", "frontends", "train", "passes", "targets", "tune", "driver", "api", "cli")
SCRIPT = "import sys, modelcc.runtime.session; print('\\n'.join(sys.modules))"


def test_the_runtime_imports_no_compiler():
    output = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    modules = output.stdout.split()
    assert "modelcc.runtime.session" in modules, output.stderr
    assert not [m for m in modules if m.split(".")[0] in ("onnx", "torch")]
    inside = [m.split(".") for m in modules if m.startswith("modelcc.")]
    assert not [m for m in inside if m[1] in COMPILER]
    assert {".".join(m) for m in inside if m[1] == "ir" and "index" not in m[-1]} == {
        "modelcc.ir",
        "modelcc.ir.call_form",
        "modelcc.ir.condition",
        "modelcc.ir.errors",
        "modelcc.ir.structure",
        "modelcc.ir.types",
    }


def test_the_runtime_imports_no_llvm():
    output = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert not [m for m in output.stdout.split() if m.split(".")[0] == "llvmlite"]
