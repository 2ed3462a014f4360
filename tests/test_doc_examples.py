"""Every example of the documents: manifests are checked, and commands are read by their parsers.

Some examples are parts of a manifest: the other parts are those of a small one. Commands that need
neither a network nor another stack, host or user are run, in a folder with the digits model.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_mlms.cli import main as command
from pytest_mlms.manifest import load
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.manifest.yaml12 import parse
from pytest_mlms.provide.stacks.schema import load_stacks
from tests.support.legacy_manifests import A1
from tests.support.project import HANG_GUARD, QUICK, ROOT, copy_digits

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DIGEST = "5c" * 32
ENOUGH = 20, 150
"""Manifests and commands that the pages have at least: fewer would mean that none is found."""

FILE = {"graph": "model.onnx", "sha256": DIGEST}
BASE: dict[str, Any] = {
    "name": "example",
    "version": "1.0.0",
    "task": "image-classification",
    "models": [{"framework": "onnxruntime", **FILE}],
    "inputs": [
        {
            "name": "x",
            "type": "image",
            "layout": "NCHW",
            "element_type": "float32",
            "steps": ["decode"],
        }
    ],
    "outputs": [{"name": "y", "type": "classification"}, {"name": "stateN", "type": "tensor"}],
    "dataset": {"name": "d", "version": "1.0.0", "source": "d.npz", "sha256": DIGEST},
}
TASKS = {"masks": "instance-segmentation", "boxes": "object-detection", "text": "ocr"}
"""Type of an output -> the task that scores it, of examples that name none."""

TASK_OF_LIMIT = {"wer": "ocr", "ap": "object-detection", "miou": "semantic-segmentation"}


class Example(NamedTuple):
    """An example: its text, and where it is."""

    place: str
    text: str


def blocks(page: Path) -> Iterator[tuple[str, Example]]:
    """Yield the blocks of a page with their language, "" where none is given."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, found.start()) + 2
        yield found[1], Example(f"{page.name}:{line}", found[2])


def inline(page: Path) -> Iterator[Example]:
    """Yield what stands between backticks in the text of a page."""
    text = re.sub(
        r"^```.*?^```",
        lambda block: "\n" * block[0].count("\n"),
        page.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    for found in re.finditer(r"`([^`\n]+)`", text):
        yield Example(f"{page.name}:{text.count(chr(10), 0, found.start()) + 1}", found[1])


def content_of(text: str) -> Any:
    """Return the value of YAML whose digests may be cut short; None where it is none."""
    text = re.sub(r"sha256: (\w*…|…)", f"sha256: {DIGEST}", text)
    document = parse(text)
    return None if document.errors else document.value


def is_part(content: Any) -> bool:
    """Return whether a value is a manifest, or sections of one."""
    sections = Manifest.model_fields.keys() - {"name", "version", "license", "description"}
    return (
        isinstance(content, dict)
        and content.keys() <= Manifest.model_fields.keys()
        and bool(content.keys() & sections)
    )


def manifests() -> Iterator[Example]:
    for page in PAGES:
        for language, example in blocks(page):
            is_yaml = language in ("", "yaml") and page.name != "ci.md"  # which has a test
            if is_yaml and is_part(content_of(example.text)):
                yield example
        for example in inline(page):
            is_section = re.match(r"\w+: [\[{]", example.text) and "…" not in example.text
            if is_section and is_part(content_of(example.text)):
                yield example


def whole(part: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest that has a part of one."""
    made = {**BASE, **part}
    if isinstance(made["dataset"], dict):
        made["dataset"] = {**BASE["dataset"], **made["dataset"]}
    made["models"] = [{**FILE, **model} for model in made["models"]]
    if "task" not in part:
        types = [output.get("type") for output in made["outputs"]]
        named = [TASKS[kind] for kind in TASKS if kind in types]
        limits = {**made.get("thresholds", {}), **made.get("thresholds", {}).get("upgrade", {})}
        named += [TASK_OF_LIMIT[key] for key in TASK_OF_LIMIT if key in limits]
        made["task"] = named[0] if named else BASE["task"]
    return made


@pytest.mark.parametrize("example", [*manifests()], ids=lambda example: example.place)
def test_an_example_of_a_manifest_is_valid(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(json.dumps(whole(content_of(example.text))))
    load(path)


def is_stacks(content: Any) -> bool:
    """Return whether a value is a file of stacks."""
    entries = list(content.values()) if isinstance(content, dict) else []
    return bool(entries) and all(
        isinstance(entry, dict) and ("interpreter" in entry or "framework" in entry)
        for entry in entries
    )


def stacks() -> Iterator[Example]:
    for page in PAGES:
        for language, example in blocks(page):
            if language == "yaml" and is_stacks(content_of(example.text)):
                yield example


@pytest.mark.parametrize("example", [*stacks()], ids=lambda example: example.place)
def test_an_example_of_stacks_is_valid(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "stacks.yaml"
    path.write_text(example.text)
    assert load_stacks(path)


def commands() -> Iterator[Example]:
    """Yield the commands of blocks, without their comments and variables."""
    pattern = re.compile(r"\s*(?:\$ )?(?:\w+=\S+ )*(?:python -m )?((?:pytest|mlms) [^#\n]*)")
    for page in PAGES:
        for language, example in blocks(page):
            if language:
                continue
            lines = example.text.replace("\\\n", " ").splitlines()
            for found in filter(None, map(pattern.match, lines)):
                text = found[1].partition(" | ")[0].replace("…", "").rstrip()
                yield Example(example.place, text)


def named_commands() -> Iterator[Example]:
    """Yield the commands that a text names, which may lack arguments."""
    for page in PAGES:
        for example in inline(page):
            if re.match(r"(pytest|mlms) [\w-]", example.text) and not re.search(
                r"[…[|]", example.text
            ):
                yield example


def parse_command(text: str, config: pytest.Config) -> None:
    """Read a command as its program does. Raises UsageError or SystemExit."""
    program, *words = shlex.split(text)
    if program == "pytest":
        config._parser.parse(words, argparse.Namespace())
    else:
        command._parser([words[0]]).parse_args(words)


@pytest.mark.parametrize("example", [*commands()], ids=lambda example: example.place)
def test_an_example_of_a_command_is_one(
    example: Example, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        parse_command(example.text, pytestconfig)
    except SystemExit:
        pytest.fail(f"{example.place}: {example.text}: {capsys.readouterr().err}")


@pytest.mark.parametrize("example", [*named_commands()], ids=lambda example: example.place)
def test_a_command_that_a_text_names_is_one(
    example: Example, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        parse_command(example.text, pytestconfig)
    except SystemExit:
        problem = capsys.readouterr().err
        is_cut_short = "arguments are required" in problem or "expected one argument" in problem
        assert is_cut_short, f"{example}: {problem}"


def test_the_pages_have_examples() -> None:
    found = len(list(manifests())), len([*commands(), *named_commands()])
    assert found >= ENOUGH


def test_each_option_of_a_command_is_named() -> None:
    named = set(re.findall(r"--[\w-]+", "\n".join(page.read_text() for page in PAGES)))
    options: set[str] = set()
    for path in (ROOT / "pytest_mlms" / "cli").glob("*.py"):
        options.update(re.findall(r'"(--[a-z][\w-]+)"', path.read_text()))
    assert options - named == {"--version"}


OWN_TEST = {"tutorial.md": "a test of its own, tests/test_tutorial.py"}
"""A page whose commands need those before them -> what runs them."""

NOT_RUN = {
    "other stacks": r"--mlms-(stack|against)[ =]|--good |stack (create|show|lock|remove) |backfill",
    "a network": r"control --write|-k AlexNet|lock diff|--dataset |^mlms (repro|reduce) ",
    "other hosts": r"--tx |^mlms worker ",
    "a server or its user": r"^mlms portal|--mlms-push|--confirm|accept ",
    "files of a reader": r"--bisection |init model.onnx|pytest model.yaml|seven.png|agent check "
    r"|advise .*--(data|hosts) |judge --lm-eval ",
}
"""The needs of commands that are only read -> a pattern that finds these."""

LEAST_RUN = 25
LONG_SEARCH = ("--budget 10min", "--budget 40s --duration 0.05 --tolerance 0.5")
PLACES = {
    "RUN": "mlms-results/latest",
    "OTHER_RUN": "mlms-results/first",
    "FOLDER": "traces",
    "model-0": "digits-cnn",
    "history.sqlite": "mlms-results/history.sqlite",
}
"""A word of a command -> its stand-in, in the folder where it runs."""

LIMIT = "thresholds:\n  top1: {min: 95 %}\n"


def needs_of(example: Example) -> str:
    """Return what a command needs that isn't here, "" for one that can run."""
    page = example.place.partition(":")[0]
    if page in OWN_TEST:
        return OWN_TEST[page]
    found = [need for need, pattern in NOT_RUN.items() if re.search(pattern, example.text)]
    return found[0] if found else ""


def run_command(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as it is written, but for the time that it measures."""
    program, *words = shlex.split(text.replace("=10min", "=3s").replace(*LONG_SEARCH))
    words = [PLACES.get(word, word) for word in words]
    if program == "pytest":
        words += [*QUICK, "-pno:benchmark"]
    module = "pytest" if program == "pytest" else "pytest_mlms"
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env={**os.environ, "MLMS_CACHE": str(folder / "cache"), "MLMS_LOCKS": str(folder)},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits model, which was measured and traced, and an old manifest."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "manifests").mkdir()
    (folder / "models").mkdir()
    (folder / "models" / "old.yml").write_text(A1)
    (folder / "pytest.ini").write_text("[pytest]\n")
    manifest = copy_digits(folder / "manifests" / "digits")
    text, _, _ = manifest.read_text().partition("thresholds:")
    manifest.write_text(text.replace("[1, 8, 64]", "[8]") + LIMIT)
    first = "pytest --mlms-manifests=manifests --mlms-history --mlms-trace=layer"
    for text in (first, "mlms lock write"):
        done = run_command(text, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    latest = folder / "mlms-results" / "latest"
    latest.with_name("first").symlink_to(latest.readlink())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [each for each in commands() if not needs_of(each)], ids=lambda each: each.text
)
def test_an_example_of_a_command_runs(example: Example, sandbox: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sandbox, tmp_path / "copy", symlinks=True)
    done = run_command(example.text, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_most_commands_are_run_and_the_others_say_what_they_need() -> None:
    found = Counter(map(needs_of, commands()))
    print(f"{found.pop('')} commands are run; of the others need {dict(found)}")
    assert found.keys() == {*NOT_RUN, *OWN_TEST.values()}
    assert len(list(commands())) - found.total() >= LEAST_RUN
