"""Ctrl-C: no traceback, at whatever moment it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """A new Python that runs ``code`` as a module, with those of ``folder`` before all others."""
    (folder / "program.py").write_text(code)
    paths = [str(folder), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "program"]
    return subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)


def test_while_modules_are_loaded(tmp_path: Path) -> None:
    """A module that gets the signal when it is imported stands for all."""
    (tmp_path / "click.py").write_text(INTERRUPT)
    done = run("import sys; from modelcc.__main__ import start; sys.exit(start())", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_while_a_command_is_loaded(tmp_path: Path) -> None:
    """Also where Python notes that a text which was executed has been interrupted."""
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have background jobs ignore it
from importlib import import_module
from modelcc.__main__ import start

def interrupted(*arguments, **named):
    exec({INTERRUPT!r})

import_module("modelcc.cli.main").Commands.get_command = interrupted
sys.argv = ["modelcc", "ops"]
start()  # what prints the message is loaded now, and executes no more texts
sys.exit(start())
"""
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (130, b"")
    assert set(done.stderr.split()) == {b"interrupted"}


SOURCE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from importlib import import_module
from modelcc.__main__ import start

class Library:
    def __init__(self):
        if {constructing}:
            signal.raise_signal(signal.SIGINT)
        self.owned = True

    def __del__(self):
        assert self.owned
        signal.raise_signal(signal.SIGINT)

more = [signal.SIGINT] * {more}

def set_timer(*arguments):
    if more:
        signal.raise_signal(more.pop())
    return signal.setitimer(*arguments)

def interrupted(*arguments, **named):
    import_module("modelcc.cli.interruption").setitimer = set_timer
    Library()
    import time
    time.sleep(60)
    print("not interrupted")

import_module("modelcc.cli.main").Commands.get_command = interrupted
sys.argv = ["modelcc", "ops"]
sys.exit(start())
"""


@pytest.mark.parametrize(("constructing", "more"), [(True, 0), (False, 0), (False, 1)])
def test_where_a_finalizer_meets_it(tmp_path: Path, constructing: bool, more: int) -> None:
    """In a constructor, whose finalizer then misses attributes; in a finalizer, which loses it;
    and ``more`` times while it is set to come again."""
    done = run(SOURCE.format(constructing=constructing, more=more), tmp_path)
    assert (done.returncode, done.stdout) == (130, b"")
    assert set(done.stderr.split()) == {b"interrupted"}
