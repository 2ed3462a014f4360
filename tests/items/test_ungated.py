"""Manifests that judge nothing."""

from __future__ import annotations

import pytest

from tests.support.project import Project

SHOW_WARNING = "-Walways:no limit judges"


@pytest.fixture
def ungated(project: Project) -> Project:
    """A project with two items and without any limit."""
    project.use_faulty()
    return project


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_manifest_without_limits_is_named_in_a_warning_and_its_items_are_counted(
    ungated: Project, workers: tuple[str, ...]
) -> None:
    result = ungated.run(SHOW_WARNING, *workers)
    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("MlmsNotGated") == 1
    warning = "no limit judges what digits-cnn measures, so it can't fail; add thresholds"
    result.stdout.fnmatch_lines(
        [
            f"  *manifests/digits.yaml:*: MlmsNotGated: {warning}",
            "mlms: 1 model: 2 passed; 2 measured, 2 not gated",
        ]
    )


def test_a_manifest_without_limits_fails_under_strict(ungated: Project) -> None:
    result = ungated.run("--mlms-strict")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*no limit judges what was measured, and --mlms-strict asks for one",
            "  add thresholds in manifests/digits.yaml",
        ]
    )
    assert {item["verdict"] for item in ungated.items()} == {"FAILED"}
    assert all(item["estimates"] for item in ungated.items())


@pytest.mark.parametrize(
    ("thresholds", "options", "warning"),
    [
        ("", ["--mlms-soak=3s"], "but the defaults of its soaks, so nothing else of it can fail;"),
        ("  soak_growth: {max: 1 MB}", [], "without --mlms-soak, so it can't fail; add that,"),
        ("  soak_growth: {max: 1 MB}", ["--mlms-soak=3s"], ""),
    ],
)
def test_a_warning_of_no_limit_tells_what_soaks_have(
    ungated: Project, thresholds: str, options: list[str], warning: str
) -> None:
    ungated.set_thresholds(thresholds)
    result = ungated.run(SHOW_WARNING, *options, "--collect-only")
    assert ("test_soak[" in result.stdout.str()) is bool(options)
    assert result.stdout.str().count("MlmsNotGated") == bool(warning)
    result.stdout.fnmatch_lines(
        [f"*no limit judges what digits-cnn measures {warning}*"][: bool(warning)]
    )


def test_a_manifest_that_limits_some_of_its_items_neither_warns_nor_fails(
    ungated: Project,
) -> None:
    ungated.set_thresholds("  latency_p50: {max: 60000 min}")
    result = ungated.run(SHOW_WARNING, "--mlms-strict")
    result.assert_outcomes(passed=2)
    assert "MlmsNotGated" not in result.stdout.str()
    result.stdout.fnmatch_lines(["mlms: 1 model: 2 passed; 2 measured, 1 not gated"])


def test_an_agreement_that_no_case_has_leaves_a_manifest_without_a_limit(ungated: Project) -> None:
    ungated.set_thresholds("  agreement: {reference: faulty}")
    result = ungated.run(SHOW_WARNING, "--collect-only")
    assert result.stdout.str().count("MlmsNotGated") == 1
    advice = "no stack of this run has a model that its agreement compares with the reference: name"
    result.stdout.fnmatch_lines([f"*so it can't fail; {advice} one by --mlms-stack*"])
