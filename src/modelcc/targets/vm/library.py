"""The interpreter's kernels as C: their functions, and the dispatch table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files

from modelcc.ir.loop import Function, Parameter
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.c.dialect import EMBEDDED
from modelcc.targets.c.emitter import EmitOptions, definitions
from modelcc.targets.c.names import symbol
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.values import memory_type
from modelcc.targets.vm.bounds_code import HELPERS, bounds_function
from modelcc.targets.vm.kernel import VmKernel, kernels_json

WRITTEN = 32
"""Flag in the table of buffers: it is written.  Below it are the logarithm of its element's bytes
(2 bits), and the bits of its offset that must be 0."""

WORD = 4


def interpreter_files(kernels: Sequence[VmKernel], origin: str) -> tuple[File, ...]:
    """The interpreter with ``kernels``; ``origin`` describes them."""
    folder = files("modelcc.targets.vm.interpreter")
    texts = {name: folder.joinpath(name).read_text("utf-8") for name in ("mcc.h", "mcc.c")}
    texts["mcc_kernels.h"] = _header(kernels)
    texts["mcc_kernels.c"] = _source(kernels, origin)
    texts["kernels.json"] = kernels_json(kernels)
    return tuple(File(name, text.encode()) for name, text in texts.items())


def buffer_type(parameter: Parameter) -> int:
    """The table's entry of a buffer."""
    buffer = parameter.buffer
    bytes_ = buffer.dtype.bytes
    mask = max(bytes_, WORD if buffer.align >= WORD else 1) - 1
    return (bytes_.bit_length() - 1) | mask << 2 | (WRITTEN if parameter.mutable else 0)


def _header(kernels: Sequence[VmKernel]) -> str:
    buffers = max(len(k.function.parameters) for k in kernels)
    parameters = max(len(k.function.sizes) for k in kernels)
    checks = max(1, *(k.checks for k in kernels))
    return f"""\
/* mcc_kernels.h: how much there is in mcc_kernels.c, written by modelcc. */
#ifndef MCC_KERNELS
#define MCC_KERNELS {len(kernels)}
#define MCC_BUFFERS {buffers} /* of a kernel */
#define MCC_PARAMETERS {parameters} /* of a kernel */
#define MCC_CHECKS {checks} /* of a kernel */
#endif
"""


def _source(kernels: Sequence[VmKernel], origin: str) -> str:
    prelude = Prelude(EMBEDDED)
    options = EmitOptions(static=True, dialect=EMBEDDED)
    named = [_named(kernel) for kernel in kernels]
    functions = definitions(named, prelude, options)
    return "\n\n".join(
        [
            f"/* mcc_kernels.c: kernels of the interpreter, written by modelcc for {origin}. */",
            '#include "mcc.h"',
            prelude.text(),
            f"#ifndef MCC_INLINE\n#define MCC_INLINE {EMBEDDED.inline}\n#endif",
            HELPERS,
            *functions,
            *(text for kernel in kernels for text in _wrapped(kernel)),
            _table(kernels),
        ]
    ) + "\n"  # fmt: skip


def _named(kernel: VmKernel) -> Function:
    return replace(kernel.function, name=kernel.name)


def _wrapped(kernel: VmKernel) -> Iterator[str]:
    """The function that the table points to."""
    function = kernel.function
    given = [_pointer(n, p) for n, p in enumerate(function.parameters)]
    given += [f"p[{n}]" for n in range(len(function.sizes))]
    given += ["faults"] if kernel.checks else []
    unused = "" if kernel.checks else "    (void)faults;\n"
    call = ",\n        ".join(given)
    yield bounds_function(kernel)
    yield (
        f"static void {kernel.name}_run(void *const *b, const int32_t *p, int64_t *faults)\n{{\n"
        f"{unused}    {symbol(kernel.name)}(\n        {call});\n}}"
    )
    types = ", ".join(str(buffer_type(p)) for p in function.parameters)
    yield f"static const uint8_t {kernel.name}_types[] = {{{types}}};"


def _pointer(number: int, parameter: Parameter) -> str:
    access = "" if parameter.mutable else "const "
    return f"({access}{memory_type(parameter.buffer.dtype)} *)b[{number}]"


def _table(kernels: Sequence[VmKernel]) -> str:
    rows: list[str] = []
    for kernel in kernels:
        high, low = kernel.digest[:8], kernel.digest[8:]
        name, function = kernel.name, kernel.function
        rows.append(
            f"    {{{{UINT32_C(0x{low}), UINT32_C(0x{high})}}, {name}_fits, {name}_run,\n"
            f"     {name}_types, {len(function.sizes)}, {len(function.parameters)}, "
            f"{kernel.checks}}},"
        )
    return "\n".join(["const mcc_kernel mcc_kernels[MCC_KERNELS] = {", *rows, "};"])
