"""Wrong uses of the command line, and what each is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """``arguments`` (a shell line) are refused with a message that has all of ``says``.

    They run in a folder with ``net.onnx`` (small, batch is a named dimension), ``broken.onnx``,
    ``unsupported.onnx``, ``net.mcc``, ``cut.mcc``, ``x.npy`` (2x6), ``wrong.npy`` (i64, 3 of
    them), ``text.npy`` (not a NumPy file) and ``net.graph.mlir`` (without its constants).
    """

    name: str
    arguments: str
    says: tuple[str, ...]


CASES = (
    Case("no-model", "compile none.onnx", ("none.onnx", "No such file")),
    Case("folder", "compile .", ("is a directory",)),
    Case("empty-name", "compile ''", ("the name is empty",)),
    Case("device", "run /dev/null", ("/dev/null is a pipe or a device", "to a file")),
    Case(
        "skip-needed", "compile net.onnx --skip build", ("'build' cannot be left out", "Winograd")
    ),
    Case("broken", "compile broken.onnx", ("broken.onnx", "not an ONNX file")),
    Case("unsupported", "compile unsupported.onnx", ("first", "NoSuchOp", "second", "NorThis")),
    Case("target", "compile net.onnx --target natve", ("natve", "did you mean 'native'")),
    Case("cpu", "compile net.onnx --cpu z80", ("z80", "x86-64-v3")),
    Case("dimension", "compile net.onnx --dim batch", ("'batch'", "batch=8")),
    Case("unknown-dimension", "compile net.onnx --dim bach=2", ("bach", "batch")),
    Case("accuracy", "run net.onnx --accuracy exact", ("exact", "strict")),
    Case(
        "strict-winograd",
        "bench net.onnx --accuracy strict --winograd",
        ("winograd", "'strict'", "one of the two"),
    ),
    Case("skip", "compile net.onnx --skip Fold", ("'Fold'", "FoldConstants")),
    Case("limit", "compile net.onnx --stop-after Fold", ("'Fold'", "SimplifyAlgebra=3")),
    Case("no-limit", "compile net.onnx --stop-after emit=3", ("emit", "Canonicalise")),
    Case("form", "compile net.onnx --emit wasm", ("wasm", "graph")),
    Case("form-of-target", "compile net.onnx --emit ptx", ("ptx",)),
    Case("backwards", "compile net.graph.mlir --from tensor --emit graph", ("before",)),
    Case("no-constants", "compile net.graph.mlir --from graph -o a.mcc", ("no constant",)),
    Case("binary-text", "compile broken.onnx --from graph", ("broken.onnx is no text",)),
    Case("compiled", "compile net.mcc -o again.mcc", ("net.mcc", "compiled model already")),
    Case("over-itself", "compile net.onnx -o net.onnx", ("net.onnx", "would be overwritten", "-o")),
    Case("page-over-it", "compile net.onnx --page net.onnx", ("would be overwritten",)),
    Case("over-inputs", "run net.mcc -i x=x.npy -o x.npy", ("x.npy", "would be overwritten")),
    Case("no-form", "compile net.onnx -o net.o", ("net.o", "compiled model", "net.mcc", "obj")),
    Case("no-artifact", "compile net.onnx --emit obj -o a.mcc", ("a.mcc", "'obj'", "name it a.o")),
    Case("from-llvm", "compile bad.ll --from llvm -o a.mcc", ("a.mcc", "'obj'", "name it a.o")),
    Case("other-file", f"run net.mcc --sha256 {'0' * 64}", ("net.mcc", "its SHA-256 is")),
    Case("no-digest", "run net.mcc --sha256 12", ("'12'", "64 hexadecimal digits")),
    Case("pin-a-model", f"run net.onnx --sha256 {'0' * 64}", ("net.onnx", "pins a compiled model")),
    Case("verify-alone", "verify net.mcc", ("net.mcc", "--against MODEL.onnx")),
    Case("verify-layers", "verify net.mcc --against net.onnx --layers", ("net.onnx --layers",)),
    Case("against-a-model", "verify net.onnx --against net.onnx", ("for a compiled model",)),
    Case("peer-of-artifact", "bench net.mcc --against onnxruntime", ("net.mcc", "an .onnx file")),
    Case("no-folder", "compile net.onnx -o none/net.mcc", ("none", "no folder")),
    Case("readonly", "compile net.onnx -o /proc/net.mcc", ("/proc",)),
    Case("stage-text", "compile bad.ll --from llvm --emit asm", ("line 1",)),
    Case("not-an-artifact", "run cut.mcc", ("cut.mcc", "compile the model again")),
    Case("no-input", "run net.mcc -i z=x.npy", ("'z'", "inputs are x")),
    Case("input-file", "run net.mcc -i x=none.npy", ("none.npy", "No such file")),
    Case("input-type", "run net.mcc -i x=wrong.npy", ("'x'", "f32", "i64")),
    Case("not-numpy", "run net.mcc -i x=text.npy", ("text.npy", "NumPy")),
    Case("size", "run net.mcc --size bach=2", ("bach", "batch")),
    Case("size-range", "run net.mcc --size batch=1..2", ("range",)),
    Case("engine", "bench net.onnx --against tensorrt", ("tensorrt", "onnxruntime")),
    Case("command", "compyle net.onnx", ("compyle",)),
    Case("option", "compile net.onnx --fast", ("--fast",)),
    Case("no-threads", "run net.mcc --threads 0", ("0",)),
)
