"""Links and paths of pages, and of the code and messages that name pages, lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.project import ROOT, sources

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "manifests").rglob("*.md")),
]
FENCE = re.compile(r"^( *)```.*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
OUR_PATH = re.compile(r"`((?:ci|docs|manifests|predictors|pytest_mlms|tests)/[\w./-]+)`")
FILE_OF_A_STOREY = re.compile(r"\b[a-z_]+(?:/[a-z_]+)+\.(?:py|c)\b")
NAMED_PAGE = re.compile(r"(?<![\w/])docs/\w+\.md\b(?:#[\w-]+)?")
TABLE = re.compile(r"(?:^ *\|.*\n)+", re.MULTILINE)

MADE_BY_READERS = {"manifests/mlms-control"}
OF_ONNX_RUNTIME = {"docs/ContribOperators.md"}


def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text())


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page: of its headings as GitHub makes them, and its own."""
    text = text_of(page)
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (made := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(made)
    return found


def links() -> Iterator[tuple[Path, str]]:
    """Yield each link to a file of ours, with the page that has it."""
    for page in PAGES:
        for link in LINK.findall(text_of(page)):
            if not re.match(r"\w+:", link):
                yield page, link


def problem_of(page: Path, link: str) -> str:
    """Return what is wrong with a link of a page, "" if nothing is."""
    name, _, anchor = unquote(link).partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return f"{page.name}: {link}: there is no such file"
    if anchor and anchor not in anchors_of(target):
        return f"{page.name}: {link}: {target.name} has no such heading"
    return ""


def test_each_link_leads_to_a_file_and_a_heading() -> None:
    found = list(links())
    assert len(found) > 200
    assert not [problem for problem in map(problem_of, *zip(*found, strict=True)) if problem]


@pytest.mark.parametrize("link", ["none.md", "docs/ci.md#none", "#none"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert problem_of(ROOT / "README.md", link)


def test_a_heading_has_the_anchor_that_github_gives_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# `mlms`, again: why?\n## A\n## A\n```\n# code\n```\n")
    assert anchors_of(page) == {"mlms-again-why", "a", "a-1"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_path_of_ours_that_a_page_names_exists(page: Path) -> None:
    named = {path.rstrip("/.") for path in OUR_PATH.findall(text_of(page))}
    named = {path for path in named if "NAME" not in path} - MADE_BY_READERS
    assert not [path for path in sorted(named) if not (ROOT / path).exists()]


def test_each_file_that_the_architecture_names_exists() -> None:
    named = set(FILE_OF_A_STOREY.findall((ROOT / "ARCHITECTURE.md").read_text()))
    assert len(named) > 40
    folders = (ROOT, ROOT / "pytest_mlms")
    assert not [name for name in named if not any((of / name).exists() for of in folders)]


def test_a_page_that_the_code_names_exists() -> None:
    named: set[str] = set()
    for path in sources("ci", "predictors", "pytest_mlms"):
        if path.suffix in {".py", ".html", ".sh", ""}:
            named.update(NAMED_PAGE.findall(path.read_text()))
    assert len(named) > 15
    named -= OF_ONNX_RUNTIME
    assert not [problem for name in sorted(named) if (problem := problem_of(ROOT / "x", name))]


def row_problems(text: str) -> Iterator[str]:
    """Yield the rows of a page that GitHub doesn't show as those of a table."""
    for table in TABLE.finditer(text):
        head, *rows = table[0].splitlines()
        above = text[: table.start()].splitlines()[-1:]
        if not rows or not re.fullmatch(r"[ |:-]+", rows[0]):
            yield f"a table needs a head: {head}"
        if "".join(above).strip() and not above[0].startswith("#"):
            yield f"a table needs an empty line above: {head}"
        columns = len(re.findall(r"(?<!\\)\|", head))
        yield from (row for row in rows if len(re.findall(r"(?<!\\)\|", row)) != columns)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_table_of_a_page_is_shown_as_one(page: Path) -> None:
    assert not list(row_problems(text_of(page)))


@pytest.mark.parametrize(
    "text", ["\n| a | b |\n", "# a\n| a |\n|---|\n| 1 | 2 |\n", "a\n| a |\n|---|\n"]
)
def test_a_table_that_would_not_be_shown_is_found(text: str) -> None:
    assert list(row_problems(text))


def test_each_page_is_found_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    linked = {link.partition("#")[0] for link in LINK.findall(index)}
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages - {"index.md"} <= linked
