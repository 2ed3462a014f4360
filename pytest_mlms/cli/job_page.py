"""Annotations and the summary of a job of GitHub, of a command that ends with status 1."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

IS_ON_GITHUB = "GITHUB_ACTIONS"
"""The variable that is "true" in a job."""

_LONGEST = 100_000  # characters of a summary


def run_in_job(words: Sequence[str], run: Callable[[], int]) -> int:
    """Run a command, and return its status.

    Where that is 1, its errors of manifests become annotations at their lines, or else its last
    line becomes one, and the summary of the job gets all that it printed.
    """
    printed: list[str] = []
    with (
        contextlib.redirect_stdout(_Copied(sys.stdout, printed)),
        contextlib.redirect_stderr(_Copied(sys.stderr, printed)),
    ):
        status = run()
    if status == 1:
        named = [word for word in words[:2] if not word.startswith("-")]
        _tell(f"mlms {' '.join(named)}", "".join(printed))
    return status


class _Copied:
    """A stream whose text is kept, too."""

    def __init__(self, stream: Any, kept: list[str]) -> None:
        self._stream = stream
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._kept.append(text)
        return int(self._stream.write(text))


def _tell(name: str, text: str) -> None:
    from pytest_mlms.core.text import shortened
    from pytest_mlms.show.report.github_annotations import github_annotations, workflow_command
    from pytest_mlms.show.report.markdown import code_block

    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".").absolute()
    lines = [line for line in text.splitlines() if line.strip()] or ["it failed"]
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    at_lines = list(github_annotations([], [text], Path.cwd(), workspace, bool(summary)))
    for command in at_lines or [workflow_command("error", lines[-1], {"title": name})]:
        print(command, file=sys.stderr)  # the output may be JSON
    if summary:
        block = code_block(shortened(text, _LONGEST).splitlines())
        with contextlib.suppress(OSError), Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"## {name}\n\n{block}\n\n")
