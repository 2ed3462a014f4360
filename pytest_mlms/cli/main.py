"""The ``mlms`` command: its parser, its exit status, and what a job of GitHub shows of it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import missing_extra
from pytest_mlms.core.waits import interrupts_kept

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
    from pytest_mlms.show.report.step_summary import code_block

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


_SUBCOMMANDS = {
    "init": ("init", "add_init"),
    "compare": ("compare", "add_compare"),
    "import": ("import_legacy", "add_import"),
    "schema": ("schema", "add_schema"),
    "lint": ("lint", "add_lint"),
    "doctor": ("doctor", "add_doctor"),
    "describe": ("describe", "add_describe"),
    "predict": ("predict", "add_predict"),
    "library": ("library", "add_library"),
    "advise": ("advise", "add_advise"),
    "judge": ("judge", "add_judge"),
    "bisect": ("bisect", "add_bisect"),
    "repro": ("repro", "add_repro"),
    "reduce": ("reduce", "add_reduce"),
    "culprit": ("culprit", "add_culprit"),
    "lock": ("lock", "add_lock"),
    "history": ("history", "add_history"),
    "portal": ("portal", "add_portal"),
    "push": ("portal", "add_push"),
    "worker": ("worker", "add_worker"),
    "stack": ("stack", "add_stack_commands"),
    "agent": ("agent", "add_agent"),
    "analyze": ("trace", "add_analyze"),
    "export": ("trace", "add_export"),
    "report": ("report", "add_report"),
}
"""Subcommand -> its file in this package, and the function there that adds it to a parser.

They are in the order of the help. A file is imported where its subcommand is asked for, as each
needs other libraries.
"""

_USAGE = 2
"""The exit status of a command that was called wrongly."""

_OWN_USAGE = {"bisect": 3, "compare": 4, "culprit": 3}
"""The same of subcommands for which 2 is an answer, or that have pytest's statuses."""

_INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended: 128 and the number of SIGINT."""

_COMPLETION = "_ARGCOMPLETE"
"""The variable that is set where the shell asks for completions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns 0, or 1 where it found errors, or 2 where it was called wrongly, or 130 where Ctrl-C
    ended it. ``mlms bisect``, ``compare`` and ``culprit`` have exit statuses of their own.
    """
    words = sys.argv[1:] if arguments is None else arguments
    usage = _OWN_USAGE.get(words[0], _USAGE) if words else _USAGE
    try:
        with interrupts_kept():
            status = _run(words)
        sys.stdout.flush()
    except MlmsError as error:
        print(f"mlms: {error}", file=sys.stderr)
        return usage
    except ImportError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        print(f"mlms: {missing}", file=sys.stderr)
        return usage
    except SystemExit as end:  # of argparse, which has printed its error
        if end.code != _USAGE:
            raise
        raise SystemExit(usage) from None
    except KeyboardInterrupt:
        print("mlms: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has ended
        _discard_output()
        return 1
    return status


def _run(words: Sequence[str]) -> int:
    """Run the command that is asked for; return its status."""
    asked = words[0] if words else ""
    from pytest_mlms.cli.arguments import take_settings

    parser = _parser([asked] if asked in _SUBCOMMANDS else _SUBCOMMANDS)
    if _COMPLETION in os.environ:
        _complete(parser)
    options = parser.parse_args(words)
    take_settings(options)
    if os.environ.get(IS_ON_GITHUB) == "true" and asked not in _OWN_USAGE:
        return run_in_job(words, lambda: options.run(options))
    status: int = options.run(options)
    return status


class _Parser(argparse.ArgumentParser):
    """A parser whose paths may begin at the home, as in pytest's options.

    An option must be written in full: a beginning that is enough today may not be so with the next
    release. Unknown arguments are its own error, with its own usage, not that of the parser above.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(allow_abbrev=False, **arguments)
        self.register("type", Path, lambda text: Path(os.path.expanduser(text)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return options, unknown

    def _meant(self, word: str) -> str:
        """Return the option that a word may mean, as a question."""
        from pytest_mlms.core.text import close_words

        known = [name for name in self._option_string_actions if name.startswith("--")]
        close = close_words(word.partition("=")[0], known, 1, 0.8) if word.startswith("--") else []
        return f"; did you mean {close[0]}?" if close else ""


def _parser(subcommands: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser of these subcommands."""
    parser = _Parser(
        prog="mlms", description="Write and check manifests, describe and use models, ask traces."
    )
    version = f"pytest-mlms {pytest_mlms.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in subcommands:
        file, function = _SUBCOMMANDS[name]
        module = importlib.import_module(f"pytest_mlms.cli.{file}")
        getattr(module, function)(commands)
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, which asks for the words that may come next, and end.

    Does nothing without the package argcomplete.
    """
    with contextlib.suppress(ImportError):
        import argcomplete

        argcomplete.autocomplete(parser)


def _discard_output() -> None:
    """Redirect the rest of the output, which Python would complain about at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
