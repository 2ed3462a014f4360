"""Columns of a run that its line tells."""

from __future__ import annotations

from pytest_mlms.keep.history.run_content import origin_columns

EMPTY = {"git_sha": None, "dirty": None, "branch": None, "ci_url": None}


def test_the_revision_and_the_job_are_columns_of_the_run() -> None:
    git = {"sha": "ab12", "dirty": True, "branch": "main"}
    job = {"service": "GitLab", "url": "https://gitlab.example/1"}
    assert origin_columns({"git": git, "ci": job}) == {
        "git_sha": "ab12",
        "dirty": True,
        "branch": "main",
        "ci_url": "https://gitlab.example/1",
    }


def test_lines_without_them_have_empty_columns() -> None:
    assert origin_columns({}) == origin_columns({"git": None, "ci": None}) == EMPTY
