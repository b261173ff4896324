"""Models as packages of others: found by CMake, and as Arduino libraries."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.arduino import arduino_files
from modelcc.targets.mcu.delivery.files import embedded_files
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import WARNINGS, command, embedded, keyword_spotter, leaky_sum

CONSUMER = """
cmake_minimum_required(VERSION 3.13)
project(app C)
find_package(net REQUIRED)
add_executable(app app.c)
target_link_libraries(app net::net)
"""

SERIAL = """
#include <stdint.h>
struct Printer {
  void begin(long) {}
  void print(const char *) {}
  void println(const char *) {}
  void println(unsigned long) {}
  void println(int) {}
  void println(double) {}
};
static Printer Serial;
static unsigned long micros() { return 0; }
static void delay(unsigned long) {}
"""


def written(files: Iterable[File], folder: Path) -> Path:
    for file in files:
        (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(file.contents)
    return folder


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_an_installed_model_is_found(tmp_path: Path) -> None:
    files = embedded_files(embedded(leaky_sum()))
    folder, app = written(files, tmp_path / "net"), tmp_path / "app"
    command(["cmake", "-B", "build"], folder)
    command(["cmake", "--build", "build"], folder)
    command(["build/net_example"], folder)
    command(["cmake", "--install", "build", "--prefix", str(tmp_path / "there")], folder)
    app.mkdir()
    (app / "CMakeLists.txt").write_text(CONSUMER)
    shutil.copy(folder / "example.c", app / "app.c")
    command(["cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'there'}"], app)
    command(["cmake", "--build", "build"], app)
    command(["build/app"], app)


@pytest.mark.parametrize("name", ["cortex-m4"])
def test_the_toolchain_builds_for_the_processor(name: str, tmp_path: Path) -> None:
    compiler = f"{MODELS[name].compiler}gcc"
    for tool in ("cmake", compiler):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    folder = written(embedded_files(embedded(keyword_spotter(), name)), tmp_path)
    command(["cmake", "-B", "build", "-DCMAKE_TOOLCHAIN_FILE=toolchain.cmake"], folder)
    command(["cmake", "--build", "build"], folder)
    assert (folder / "build" / "libnet.a").exists()


def test_an_arduino_library_has_the_layout_of_the_specification() -> None:
    files = {
        file.name: bytes(file.contents).decode() for file in arduino_files(embedded(leaky_sum()))
    }
    lines = [line.partition("=") for line in files["library.properties"].splitlines()]
    properties = {key: value for key, _, value in lines}
    wanted = "name version author maintainer sentence paragraph category url architectures includes"
    assert [*properties] == wanted.split()
    assert re.fullmatch(r"[A-Za-z0-9][\w .-]{0,62}", properties["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])
    assert f"src/{properties['includes']}" in files
    for path in files:
        if path.endswith(".ino"):  # a sketch is called as its folder is
            assert Path(path).stem == Path(path).parent.name
    keywords = [line.split("\t") for line in files["keywords.txt"].splitlines()]
    assert ["net_reset", "KEYWORD2"] in keywords
    text = files["src/net.h"]
    assert all(len(row) == 2 and row[0] in text for row in keywords)


def test_the_sketch_compiles(tmp_path: Path) -> None:
    found = filter(shutil.which, ("arm-none-eabi-g++", "g++"))
    compiler = next(found, None)
    if compiler is None:
        pytest.skip("there is no g++, for microcontrollers or for this machine")
    for number, model in enumerate((leaky_sum(), keyword_spotter())):
        folder = written(arduino_files(embedded(model)), tmp_path / str(number))
        (folder / "Arduino.h").write_text(SERIAL)
        (sketch,) = folder.glob("examples/*/*.ino")
        flags = ["-Wall", "-Wextra", "-Werror", "-Isrc", "-I.", "-include", "Arduino.h"]
        command([compiler, *flags, "-x", "c++", "-c", str(sketch), "-o", "sketch.o"], folder)
        if compiler == "g++":
            command(["gcc", *WARNINGS, "-c", "src/net.c"], folder)
