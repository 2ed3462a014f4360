"""Warnings of manifests without a limit, of variables of threads, and of originals."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fileserver import serving
from tests.support.legacy_manifests import A0, A2
from tests.support.original_digits import accuracy_of_script, serve_network, write_dataset
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


@pytest.fixture
def one_thread(project: Project) -> Project:
    """A project whose manifest asks for one thread."""
    project.edit("evaluate:\n", "evaluate:\n  threads: 1\n")
    return project


def warnings_of(project: Project, *options: str) -> list[str]:
    result = project.run("--collect-only", *options)
    assert result.ret == 0
    return [line for line in result.outlines if "is asked of the framework" in line]


def test_a_variable_that_says_another_number_than_the_manifest_is_warned_of_once(
    one_thread: Project,
) -> None:
    (found,) = warnings_of(one_thread, "--mlms-stack=here+OMP_NUM_THREADS=4")
    assert "manifests/digits.yaml:" in found
    assert "'threads: 1' is asked of the framework, so that OMP_NUM_THREADS=4 of stack" in found
    sides = ("--mlms-stack=here", "--mlms-against=here+OMP_NUM_THREADS=4")
    assert len(warnings_of(one_thread, *sides)) == 1


def test_a_variable_that_says_the_same_or_beside_no_threads_is_no_matter(
    one_thread: Project,
) -> None:
    assert not warnings_of(one_thread, "--mlms-stack=here+OMP_NUM_THREADS=1")
    assert not warnings_of(one_thread, "--mlms-stack=here+KMP_BLOCKTIME=1")
    one_thread.edit("  threads: 1\n", "")
    assert not warnings_of(one_thread, "--mlms-stack=here+OMP_NUM_THREADS=4")


def test_threads_of_a_stack_beside_its_own_variable_are_warned_of_at_the_stack(
    project: Project,
) -> None:
    (project.folder / "stacks.yaml").write_text(
        "two: {framework: onnxruntime, interpreter: current, threads: 2, env: {OMP_NUM_THREADS: '4'}}"
    )
    (found,) = warnings_of(project, "--mlms-stack=two")
    assert "stacks.yaml:1: " in found


SHOW_WARNINGS = "-Walways:no limit judges"


@pytest.fixture
def originals(project: Project) -> Project:
    """A project whose folder has two originals and a file of a CI service instead of a manifest."""
    project.drop()
    (project.folder / "one.yml").write_text(A2)
    (project.folder / "two.yml").write_text(A2)
    (project.folder / ".travis.yml").write_text("language: go\nscript: [make]\n")
    return project


def test_originals_are_collected_and_warned_of_once(originals: Project) -> None:
    result = originals.run("--collect-only", "-q", SHOW_WARNINGS)
    result.stdout.fnmatch_lines(
        [
            "manifests/one.yml::test_performance[[]tensorflow-cpu-b1-single_stream]",
            "manifests/two.yml::test_performance[[]tensorflow-cpu-b1-single_stream]",
            "*original manifests: imagenet (2); add them to one, so that accuracy is measured",
            "*no limit judges what is measured of 2 original manifests*",
            "*1 YAML file is no manifest and was left alone: manifests/.travis.yml",
            "2 tests collected*",
        ]
    )
    assert result.ret == 0


def test_originals_can_fail_by_the_defaults_of_soaks(originals: Project) -> None:
    result = originals.run("--collect-only", "-q", "--mlms-soak=3s", SHOW_WARNINGS)
    text = "no limit judges what is measured of 2 original manifests but the defaults of soaks; add"
    result.stdout.fnmatch_lines([f"*{text} thresholds*"])


def test_a_refused_original_is_an_error_with_its_line(originals: Project) -> None:
    (originals.folder / "stub.yml").write_text(A0)
    result = originals.run("--collect-only", "-q", "--continue-on-collection-errors")
    result.stdout.fnmatch_lines(["manifests/stub.yml:7: has no model file*", "*1 error in*"])


def test_a_file_of_something_else_that_is_named_is_an_error(originals: Project) -> None:
    result = originals.run("--collect-only", "-q", "--mlms-manifests=manifests/.travis.yml")
    result.stdout.fnmatch_lines(["manifests/.travis.yml:1: 'models' is missing*"])


def test_the_nearest_declared_stack_is_chosen(originals: Project) -> None:
    (originals.folder / "stacks.yaml").write_text(
        "old: {framework: tensorflow, requirements: [tensorflow==1.4.0]}\n"
        "new: {framework: tensorflow, requirements: [tensorflow==2.15.1]}\n"
        "newer: {framework: tensorflow, requirements: [tensorflow==2.21.0]}\n"
    )
    result = originals.run("--collect-only", "-q")
    result.stdout.fnmatch_lines(["manifests/one.yml::test_performance[[]new-cpu-b1-single_stream]"])
    chosen = originals.run("--collect-only", "-q", "--mlms-stack=old")
    chosen.stdout.fnmatch_lines(["manifests/one.yml::test_performance[[]old-cpu-b1-single_stream]"])


@pytest.fixture
def digits(project: Project) -> Iterator[Project]:
    """A project with an original of a real network, whose files a server has."""
    project.drop()
    write_dataset(project.folder)
    with serving() as server:
        (project.folder / "digits.yml").write_text(serve_network(server))
        yield project


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_an_original_runs_as_it_is(digits: Project, workers: tuple[str, ...]) -> None:
    result = digits.run(*workers)
    result.assert_outcomes(passed=2)
    items = {item["kind"]: item for item in digits.items()}
    assert items["accuracy"]["estimates"]["top1"]["value"] == accuracy_of_script()
    assert items["performance"]["nodeid"].startswith("manifests/digits.yml::test_performance[")
    for item in items.values():
        assert item["manifest"]["path"] == os.path.join("manifests", "digits.yml")
        assert item["original"]["dialect"] == "A2"
        assert item["other_version"].startswith("asked for onnxruntime ==1.7.1, ran with 1.")
    softmax = {"place": "manifests/digits.yml:13", "text": _RESIZED}
    assert softmax in items["accuracy"]["original"]["decisions"]
    result.stdout.fnmatch_lines(
        [
            "*mlms: decided about original manifests*",
            "manifests/digits.yml: asked for onnxruntime ==1.7.1, ran with 1.* of stack here",
            f"manifests/digits.yml:13: {_RESIZED}",
        ]
    )
    recorded = (digits.folder / "digits.sha256").read_text()
    assert recorded.endswith("/names.txt\n")


_RESIZED = (
    "resize: the agents stretched to this size by Go's linear filter, which is Pillow's bilinear"
)


@pytest.mark.slow
def test_an_original_is_upgraded_as_another_manifest(digits: Project, tmp_path: Path) -> None:
    result = digits.run("--mlms-aa", "--mlms-stack=here")
    assert "error" not in result.parseoutcomes()
    (item,) = digits.items()
    assert item["kind"] == "upgrade"
    assert item["original"]["dialect"] == "A2"
