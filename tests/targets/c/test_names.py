"""Names of models as names of C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from modelcc.targets.c.names import identifier

NAMES = ("tanh", "tanhf", "gamma", "y0", "jn", "exp10l", "int", "NULL", "isinf", "x", "a b", "1st")


def test_no_name_means_another_thing_in_the_headers(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    lines = [f"static const short {identifier(name)}[2] = {{1, 2}};" for name in NAMES]
    uses = " + ".join(f"{identifier(name)}[0]" for name in NAMES)
    headers = [f"#include <{name}.h>" for name in ("math", "stdbool", "stdint", "string")]
    text = "\n".join([*headers, *lines, f"int main(void) {{ return {uses} - {len(NAMES)}; }}"])
    (tmp_path / "names.c").write_text(text)
    command = [compiler, "-D_GNU_SOURCE", "-Werror", "names.c", "-o", "names"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "names"], check=True)
