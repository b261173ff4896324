"""Runs a folder's page in headless Chromium, where there is one."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from shutil import which
from tempfile import TemporaryDirectory
from threading import Thread
from urllib.parse import unquote

import numpy as np

from modelcc.ir.types import Array

CHROMIUM = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless=new", "--no-sandbox", "--no-first-run", "--disable-extensions",
    "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
)  # fmt: skip

_PAGE = """\
<script type="module">
import { arrayOf, load } from "./modelcc.js";
const post = (path, body) => fetch(path, { method: "POST", body });
try {
  const model = await load("./");
  const inputs = {};
  for (const [n, tensor] of model.inputs.entries()) {
    const bytes = await (await fetch(`input${n}.bin`)).arrayBuffer();
    inputs[tensor.name] = new (arrayOf(tensor.dtype))(bytes);
  }
  await model.run(inputs);
  const { outputs, milliseconds } = await model.run(inputs);
  for (const [name, { data }] of Object.entries(outputs)) {
    await post(`/output/${encodeURIComponent(name)}`, data);
  }
  await post("/done", String(milliseconds));
} catch (error) {
  await post("/failed", `${error.name}: ${error.message}`);
}
</script>
"""


_LOOK = """\
<iframe id="page" src="index.html" width="1000" height="1200"></iframe>
<script type="module">
const frame = document.getElementById("page");
const there = (id) => frame.contentDocument?.getElementById(id);
const until = (holds) => new Promise((done) => {
  const timer = setInterval(() => {
    if (holds() || there("error")?.textContent) { clearInterval(timer); done(); }
  }, 50);
});
await until(() => there("running") && !there("running").hidden);
const area = frame.contentDocument.querySelector("textarea");
const way = frame.contentDocument.querySelector("select");
way.value = "numbers";
area.value = "NUMBERS";
way.onchange();
there("count").value = 1;
there("run").click();
await until(() => !there("results").hidden);
await fetch("/done", { method: "POST", body: frame.contentDocument.body.innerText });
</script>
"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and puts what is posted into a queue."""

    def __init__(self, *args: object, posted: Queue[tuple[str, bytes]], directory: str) -> None:
        self._posted = posted
        super().__init__(*args, directory=directory)  # pyright: ignore[reportArgumentType]

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""

    def do_POST(self) -> None:
        """Note what a page says."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self._posted.put((unquote(self.path), body))
        self.send_response(204)
        self.end_headers()


def run_page(folder: Path, inputs: list[Array], seconds: float) -> Mapping[str, bytes]:
    """The bytes of the outputs by name, of a second run on ``inputs``; ``RuntimeError`` with what
    the page says if it fails, ``TimeoutError`` if it says nothing."""
    for number, array in enumerate(inputs):
        (folder / f"input{number}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    (folder / "run.html").write_text(_PAGE)
    found: dict[str, bytes] = {}
    posted: Queue[tuple[str, bytes]] = Queue()
    with _served(folder, posted) as address, _browser(f"{address}/run.html"):
        while True:
            try:
                path, body = posted.get(timeout=seconds)
            except Empty:
                raise TimeoutError(f"the page says nothing for {seconds} s") from None
            if path == "/done":
                return found
            if path == "/failed":
                raise RuntimeError(body.decode())
            found[path.removeprefix("/output/")] = body


def look_at_page(folder: Path, numbers: str, seconds: float) -> str:
    """The text of the folder's own page, when it has run on ``numbers`` for its first input."""
    (folder / "look.html").write_text(_LOOK.replace("NUMBERS", numbers))
    posted: Queue[tuple[str, bytes]] = Queue()
    with _served(folder, posted) as address, _browser(f"{address}/look.html"):
        return posted.get(timeout=seconds)[1].decode()


@contextmanager
def _served(folder: Path, posted: Queue[tuple[str, bytes]]) -> Generator[str]:
    handler = partial(_Handler, posted=posted, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def _browser(address: str) -> Generator[None]:
    assert CHROMIUM is not None
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", address]
        with subprocess.Popen(command, **quiet) as browser:  # pyright: ignore
            try:
                yield
            finally:
                browser.terminate()
                browser.wait(20)
