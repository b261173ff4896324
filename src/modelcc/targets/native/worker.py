"""A process that compiles LLVM modules: requests on standard input, replies on standard output.

Requests are pickled `CompileRequest`s, replies pickled `Reply`s, one for each request, in order.
The process ends when its input does. Only `parallel_build` starts it.
"""

import os
import pickle
import sys
from dataclasses import dataclass

from modelcc.targets.native.diagnostics import CodegenError
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm


@dataclass(frozen=True)
class CompileRequest:
    """One module to compile."""

    text: str
    machine: Machine
    options: CodegenOptions


@dataclass(frozen=True)
class Reply:
    """An object file, or the message of the CodegenError that prevented it."""

    contents: bytes
    error: str


def serve() -> None:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of LLVM must not mix with replies
    while True:
        try:
            request: CompileRequest = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_answer(request), replies)
        replies.flush()


def _answer(request: CompileRequest) -> Reply:
    try:
        return Reply(compile_llvm(request.text, request.machine, request.options), "")
    except CodegenError as error:
        return Reply(b"", str(error))


if __name__ == "__main__":
    serve()
