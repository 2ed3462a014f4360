"""Commands that texts of this package name: each is one of ``mlms``, and runs as it is printed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import pytest_mlms
from pytest_mlms.options import OPTIONS
from tests.support.printed import mlms_options

PACKAGE = Path(str(pytest_mlms.__file__)).parent
COMMAND = re.compile(r"(?:'|: )(mlms [a-z]+ (?:[^'`;\n]|'[^' \n]*')+?)(?=' |'\)|'$|;|$)")
SENTENCES = ("mlms history changes --confirm measures", "mlms init … ")
"""What reads as a command and is none, or a part of one."""

OPTION = re.compile(r"--mlms-[a-z-]*[a-z](?![\w-])")

QUOTED = ("shlex.", "option_of(")
"""The beginnings of what quotes for a shell."""

VALUE = re.compile(r"\d+")


class Text(NamedTuple):
    """A text that isn't a docstring; a number in ``text`` stands for what is put in there."""

    place: str
    text: str
    put: list[ast.expr]


def texts() -> Iterator[Text]:
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            place = f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                skipped.update(map(id, node.values))
                yield joined(place, node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield Text(place, VALUE.sub("", node.value), [])


def joined(place: str, node: ast.JoinedStr) -> Text:
    text, put = "", list[ast.expr]()
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            text += str(len(put))
            put.append(part.value)
        elif isinstance(part, ast.Constant):
            text += VALUE.sub("", str(part.value))
    return Text(place, text, put)


def test_each_option_of_ours_in_a_text_exists() -> None:
    known = {option.flag for option in OPTIONS}
    named = {option: text.place for text in texts() for option in OPTION.findall(text.text)}
    assert len(named) > 30
    assert not {option: place for option, place in named.items() if option not in known}


def test_each_command_in_a_text_has_words_that_its_parser_takes_and_quotes_what_is_put_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, wrong = 0, []
    for text in texts():
        for command in COMMAND.findall(text.text):
            if command.startswith(SENTENCES):
                continue
            found += 1
            try:
                mlms_options(shlex.split(command))
            except SystemExit:
                wrong.append(f"{text.place}: {command}: {capsys.readouterr().err}")
            for number in VALUE.findall(command):
                if not ast.unparse(text.put[int(number)]).startswith(QUOTED):
                    wrong.append(f"{text.place}: {command}: {number} isn't quoted for a shell")
    assert found > 15
    assert not wrong
