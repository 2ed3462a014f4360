"""What a person at a terminal sees while something is fetched.

In a real one, which util-linux's script provides.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.project import DIGITS, Project


class Slow(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = (DIGITS / "digits_cnn.onnx").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for first in range(0, len(data), 20_000):
            time.sleep(0.4)
            self.wfile.write(data[first : first + 20_000])
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.skipif(shutil.which("script") is None, reason="needs util-linux's script")
@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_long_download_shows_how_far_it_is_on_a_terminal_only(
    project: Project, on_terminal: bool
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        project.edit(
            "graph: digits_cnn.onnx",
            f"graph: http://127.0.0.1:{server.server_port}/digits_cnn.onnx",
        )
        command = (
            f"{sys.executable} -m pytest --mlms-manifests=manifests --mlms-cache=cache -k accuracy"
        )
        arguments = ["script", "-qec", command, "/dev/null"] if on_terminal else command.split()
        done = subprocess.run(
            arguments, cwd=project.path, capture_output=True, text=True, timeout=3600
        )
        server.shutdown()
    assert done.returncode == 0, done.stdout
    assert ("fetching digits_cnn.onnx: " in done.stdout) is on_terminal
    assert ("% of 102 KiB" in done.stdout) is on_terminal
    last = done.stdout.rpartition("fetching")[2] if on_terminal else done.stdout
    assert "manifests/digits.yaml " in last


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("script") is None, reason="needs util-linux's script")
@pytest.mark.parametrize("on_terminal", [True, False])
def test_an_installation_shows_its_steps_on_a_terminal_only(
    project: Project, on_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (project.path / "stacks.yaml").write_text(
        "odd: {framework: onnxruntime, requirements: [no-such-distribution]}"
    )
    command = f"{sys.executable} -m pytest --mlms-manifests=manifests --mlms-cache=cache --mlms-stack=odd -k accuracy"
    arguments = ["script", "-qec", command, "/dev/null"] if on_terminal else command.split()
    done = subprocess.run(arguments, cwd=project.path, capture_output=True, text=True, timeout=3600)
    assert "No matching distribution found for no-such-distribution" in done.stdout
    for step in ("making the environment", "installing"):
        assert (f"stack odd: {step}" in done.stdout) is on_terminal
    if on_terminal:
        assert "manifests/digits.yaml " in done.stdout.rpartition("stack odd: ")[2]
