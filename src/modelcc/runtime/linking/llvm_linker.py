"""Linking by LLVM, for processors that :mod:`modelcc.runtime.linking.linker` does not support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import llvmlite.binding as llvm

from modelcc.runtime.errors import LoadError
from modelcc.runtime.loader import NativeCode

_LIBRARY = "program"


def link_objects(
    objects: Sequence[bytes], symbols: Mapping[str, int], exports: Sequence[str]
) -> NativeCode:
    """`objects` in this process; undefined names have their addresses in `symbols`."""
    library = llvm.JITLibraryBuilder()
    for data in objects:
        library.add_object_img(data)
    for name, address in symbols.items():
        library.import_symbol(name, address)
    return _link(library, exports)


def load_llvm(text: str, exports: Sequence[str]) -> NativeCode:
    """See :func:`modelcc.runtime.loader.load_llvm`."""
    return _link(llvm.JITLibraryBuilder().add_ir(text), exports)


def _link(library: llvm.JITLibraryBuilder, exports: Sequence[str]) -> NativeCode:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    jit = llvm.create_lljit_compiler(suppress_errors=True)
    library.add_current_process()
    for name in exports:
        library.export_symbol(name)
    try:
        linked = library.link(jit, _LIBRARY)
    except RuntimeError as error:
        raise LoadError(f"cannot link the compiled code: {str(error).strip()}") from error
    return NativeCode((linked, jit), {name: cast(int, linked[name]) for name in exports})
