"""A real browser for tests: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.lacking import lack

__all__ = ["JENKINS_POLICY", "check_accessibility", "open_browser", "overflow", "serve_folder"]

CHROMIUM = Path("/usr/bin/chromium")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
AXE = _CACHE / "pytest-mlms" / "axe" / "node_modules" / "axe-core" / "axe.min.js"

JENKINS_POLICY = "sandbox allow-same-origin; default-src 'none'; img-src 'self'; style-src 'self';"
"""The header of files that builds archive, as Jenkins sends it by default:
https://www.jenkins.io/doc/book/security/configuring-content-security-policy/"""

_SERIOUS = ("serious", "critical")


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """Yield the browser; skips the test where chromium or Playwright is missing."""
    if not CHROMIUM.exists():
        lack("browser", f"no {CHROMIUM}; bash ci/browser installs it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        lack("browser", f"{error}; pip install -e '.[test]' installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox"]
        )  # which root needs
        yield browser
        browser.close()


@contextlib.contextmanager
def serve_folder(folder: Path, headers: Mapping[str, str]) -> Iterator[str]:
    """Serve a folder on loopback with these headers; yield the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            for name, value in headers.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def overflow(page: Any) -> int:
    """Return by how many pixels a page is wider than its window."""
    size = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    width: int = page.evaluate(size)
    return width


def check_accessibility(page: Any) -> None:
    """Fail where axe-core finds something serious; skips the test where it is missing.

    The page must allow scripts.
    """
    if not AXE.exists():
        lack("browser", f"no {AXE}; bash ci/browser installs it")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")
    assert found["passes"], "axe-core checked nothing"
    serious = []
    for violation in found["violations"]:
        if violation["impact"] in _SERIOUS:
            nodes = [node["html"][:200] for node in violation["nodes"][:3]]
            serious.append((violation["id"], violation["help"], nodes))
    assert serious == []
