"""The command line: argv and environment in, exit code out."""

from modelcc.cli.main import cli, main

__all__ = ["cli", "main"]
