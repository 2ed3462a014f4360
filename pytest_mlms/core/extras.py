"""Extras of this package: what to install for an import that fails."""

from __future__ import annotations

INSTALL = "pip install"
"""The words of the advice."""

EXTRAS = {
    "fastapi": "portal",
    "jinja2": "report",
    "onnx": "onnx",
    "psycopg": "postgresql",
    "sqlalchemy": "history",
    "uvicorn": "portal",
}
"""Package -> the extra that installs it."""


def missing_extra(error: ImportError) -> str | None:
    """Return what is missing and how to install it; None for an import of no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"this needs {package}: {INSTALL} 'pytest-mlms[{EXTRAS[package]}]'"
