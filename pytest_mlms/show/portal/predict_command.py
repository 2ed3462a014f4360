"""The command that does what a form of predictions asked for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from pytest_mlms.core.text import visible
from pytest_mlms.show.portal.multipart import Part

_LONGEST = 10_000  # characters of a text; Linux has room for 128 KiB in a word
_PLAIN_FILE = re.compile(r"[^\W\d_][\w .-]*\.[^\W\d_]\w*")
"""The name of a file that ``mlms predict`` takes for nothing else."""


def predict_command(
    manifest: str, stacks: Sequence[str], inputs: Sequence[Part], element: int | None
) -> str:
    """Return the command for a shell in the folder of manifests, where the files of inputs are.

    ``inputs`` are the fields of a form, ``input`` or ``input.COLUMN``. Returns "" where no command
    line can have one of them: a text that is long or has a NUL, or one of several that is like a
    file's name.
    """
    options = [word for stack in stacks for word in ("--stack", stack)]
    if element is not None:
        return _line(["mlms", "predict", *options, "--element", str(element)], [manifest])
    words = []
    for part in inputs:
        column = part.name.partition(".")[2]
        word = part.text if part.filename is None else file_name(part.filename)
        if (
            "\0" in word
            or len(word) > _LONGEST
            or (column and part.filename is None and _seems_other(word))
        ):
            return ""
        if part.filename is not None and not _PLAIN_FILE.fullmatch(word):
            word = f"./{word}"
        words.append(f"{column}={word}" if column else word)
    command = ["mlms", "predict", *options]
    if len(inputs) == 1 and inputs[0].filename is None and _seems_other(words[0]):
        return f"printf %s {_quoted(words[0])} | {_line(command, [manifest, '-'])}"
    return _line(command, [manifest, *words])


def file_name(name: str) -> str:
    """Return the name of a file without the folders that some browsers send.

    A quote is %22 in forms (HTML standard, 4.10.22.8).
    """
    return PurePosixPath(name.replace("\\", "/").replace("%22", '"')).name or "input"


def _seems_other(text: str) -> bool:
    """Return whether ``mlms predict`` takes a text for a file, an address, or standard input."""
    return text == "-" or text.endswith(".txt") or "#sha256=" in text


def _line(command: Sequence[str], words: Sequence[str]) -> str:
    """Return a command and its words, of which none becomes an option."""
    has_dash = any(word.startswith("-") and word != "-" for word in words)
    return " ".join(map(_quoted, [*command, *["--"][:has_dash], *words]))


def _quoted(word: str) -> str:
    """Return a word for a shell; with what can't be seen as bash's escapes."""
    if visible(word) == word:
        return shlex.quote(word)
    shown = [one if visible(one) == one else f"\\U{ord(one):08x}" for one in word]
    escaped = "".join({"\\": "\\\\", "'": "\\'"}.get(one, one) for one in shown)
    return f"$'{escaped}'"
