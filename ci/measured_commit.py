"""The commit that a study measures: what was measured before another one is measured again."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["measured_commit"]

_ROOT = Path(__file__).resolve().parents[1]
_MEASURED = ("pytest_mlms", "predictors", "ci")


def measured_commit() -> str:
    """Return the last commit that changed what studies measure; "unknown" where git has none.

    With files that no commit has it is another one, "-changed".
    """
    commit = _git("log", "-1", "--format=%h")
    changed = "-changed" if _git("status", "--porcelain") else ""
    return f"{commit}{changed}" if commit else "unknown"


def _git(*words: str) -> str:
    command = ["git", *words, "--", *_MEASURED]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
