"""Errors of code generation, with the lines of LLVM text that they refer to."""

import re

_LOCATION = re.compile(r"<string>:(\d+):(\d+): (?:error: )?(.*)")
_CONTEXT = 3  # lines shown before the offending one


class CodegenError(Exception):
    """LLVM text that could not be turned into machine code, and why."""


def parse_failure(message: str, text: str) -> CodegenError:
    """The error for text that LLVM's parser rejected with `message`."""
    found = _LOCATION.search(message)
    if found is None:
        return CodegenError(f"LLVM cannot parse the module: {message.strip()}")
    line, column, reason = int(found[1]), int(found[2]), found[3]
    where = excerpt(text, line, column)
    return CodegenError(f"LLVM cannot parse the module: {reason}, at line {line}:\n{where}")


def verify_failure(message: str, text: str) -> CodegenError:
    """The error for a module that parsed, but fails LLVM's verifier with `message`."""
    reason, _, instruction = message.strip().partition("\n")
    line = _line_of(instruction.strip().splitlines(), text)
    where = excerpt(text, line, 0) if line else instruction
    return CodegenError(f"the LLVM module is not valid: {reason}\n{where}")


def excerpt(text: str, line: int, column: int) -> str:
    """Lines of `text` up to `line` (from 1), numbered, with a caret below `column` (from 1).

    >>> print(excerpt("a\\nb = c", 2, 5))
        1 | a
        2 | b = c
          |     ^
    """
    lines = text.splitlines()
    first = max(1, line - _CONTEXT)
    shown = [f"{n:5d} | {lines[n - 1]}" for n in range(first, min(line, len(lines)) + 1)]
    if column > 0:
        shown.append(" " * 5 + " | " + " " * (column - 1) + "^")
    return "\n".join(shown)


def _line_of(instructions: list[str], text: str) -> int:
    """Number (from 1) of the line that holds the last of `instructions`, 0 when there is none."""
    wanted = [" ".join(instruction.split()) for instruction in instructions]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    numbers = [lines.index(instruction) + 1 for instruction in wanted if instruction in lines]
    return numbers[-1] if numbers else 0
