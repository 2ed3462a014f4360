"""Manifests of a project, and those that a run may have brought."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.keep.results.recorded_manifest import is_of_project

RESULTS = Path("mlms-results")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with a run, a manifest of its own, and one that mlms compare left."""
    monkeypatch.chdir(tmp_path)
    for name in ("20260101/results.jsonl", "20260101/drafts/m.yaml", "compared/net.yaml"):
        (RESULTS / name).parent.mkdir(parents=True, exist_ok=True)
        (RESULTS / name).write_text("")


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("m.yaml", True),
        ("mlms-results/compared/net.yaml", True),
        ("mlms-results/compared/inner/net.yaml", False),
        ("mlms-results/net.yaml", False),
        ("mlms-results/20260101/drafts/m.yaml", False),
        ("../m.yaml", False),
        ("-m.yaml", False),
    ],
)
def test_a_manifest_is_of_the_project_unless_a_run_has_it(path: str, is_ours: bool) -> None:
    assert is_of_project(Path(path), RESULTS) == is_ours


@pytest.mark.parametrize("name", ["conftest.py", "results.jsonl"])
def test_what_mlms_compare_never_leaves_is_a_stranger_s(name: str) -> None:
    (RESULTS / "compared" / name).write_text("")
    assert not is_of_project(RESULTS / "compared" / "net.yaml", RESULTS)
