"""The README of a bundle, for whoever gets one."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_mlms.explain.repro.bundle import Bundle


def guide_of(bundle: Bundle) -> str:
    """Return the text of README.txt."""
    return "\n".join(_lines(bundle)) + "\n"


def _lines(bundle: Bundle) -> Iterator[str]:
    yield bundle.title
    yield ""
    yield bundle.expected.summary
    yield ""
    yield "To see it, on a machine with Python 3.10 or later and pip:"
    yield ""
    yield "    python repro.zip"
    yield ""
    yield "It says what it will install and run, and asks. It makes an environment of pytest-mlms,"
    yield "which comes along, and one for each side, in a temporary folder, which it removes."
    yield "Exit status: 0 reproduced, 1 not reproduced, 2 it couldn't run, 3 undecided."
    yield "`python repro.zip --help` has its options."
    for side in bundle.sides:
        yield ""
        yield f"{side.name}: Python {side.python}"
        for requirement in side.requirements:
            yield f"    {requirement}"
        for name, value in side.variables:
            yield f"    {name}={value}"
    for note in bundle.notes:
        yield ""
        yield note
