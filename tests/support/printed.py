"""Commands that are printed for people: they must run as they are printed."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections.abc import Iterator

from pytest_mlms.cli.main import _SUBCOMMANDS, _parser

__all__ = ["mlms_options", "printed_commands"]

_COMMAND = re.compile(r"(?:^|: |\s)((?:mlms (?:{})|pytest) [^\n]+)$".format("|".join(_SUBCOMMANDS)))


def printed_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command that stands at the end of a line, as a shell reads them."""
    for line in text.splitlines():
        found = _COMMAND.search(line)
        if found and "::" in found[1]:
            yield shlex.split(found[1])


def mlms_options(words: list[str]) -> Namespace:
    """Return the options of a command of ``mlms``; its own parser ends the test where it can't."""
    program, name, *rest = words
    assert program == "mlms"
    return _parser([name]).parse_args([name, *rest])
