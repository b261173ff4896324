"""A compiled model behind HTTP, with nothing but the standard library.

    python examples/serve.py model.mcc --port 8080
    curl -s --data-binary @x.npy http://127.0.0.1:8080/ -o y.npz

Each request is answered in a thread of its own; they all call the one model.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zipfile import BadZipFile

import numpy as np

import modelcc

LARGEST = 64 << 20
"""Bytes of a request that are accepted."""


def answer(net: modelcc.Model, body: bytes) -> bytes:
    """Outputs as an .npz for inputs as an .npy or .npz; ``ValueError`` says what is wrong."""
    try:
        given = np.load(io.BytesIO(body), allow_pickle=False)
        arrays = {name: given[name] for name in given.files} if hasattr(given, "files") else given
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        raise ValueError("the body must be an .npy or .npz file of numbers") from error
    outputs = net.run(arrays if isinstance(arrays, dict) else {net.inputs[0].name: arrays})
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **outputs)
    return file.getvalue()


def server_of(net: modelcc.Model, address: tuple[str, int]) -> ThreadingHTTPServer:
    """A server that answers POST requests by ``net``; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            if size > LARGEST:
                self.reply(413, b"too large\n")
                return
            try:
                self.reply(200, answer(net, self.rfile.read(size)))
            except (ValueError, modelcc.Error) as error:
                self.reply(400, f"{error}\n".encode())

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return ThreadingHTTPServer(address, Handler)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve a compiled model by HTTP.")
    parser.add_argument("model", help="a .mcc file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int, default=1, help="threads of each call")
    asked = parser.parse_args()
    net = modelcc.load(asked.model, threads=asked.threads)
    with server_of(net, (asked.host, asked.port)) as server:
        print(f"{net}\nhttp://{asked.host}:{server.server_port}/", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
