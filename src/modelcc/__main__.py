"""``python -m modelcc``, and the command ``modelcc``."""

import sys
from importlib import import_module
from signal import SIG_DFL, SIGINT, signal


def start() -> int:
    """Run the command line; returns its exit code.

    Ctrl-C ends the process at once while modules are loaded: there is nothing to clean up, and
    those written in C turn the exception that Python raises into others.
    """
    handler = signal(SIGINT, SIG_DFL)
    main = import_module("modelcc.cli.main").main
    signal(SIGINT, handler)
    import_module("modelcc.cli.interruption").stop_on_interruption()
    code: int = main()
    # Python ends by the signal, whatever the exit code, if Ctrl-C came while a text was executed
    # (dataclasses do that), unless another one has been since.
    exec("")
    return code


if __name__ == "__main__":
    sys.exit(start())
