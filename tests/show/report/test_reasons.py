"""Why items did not pass, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.show.report.reasons import by_reason, fitted, reasons_of
from pytest_mlms.show.report.step_summary import step_summary
from tests.support.project import DIGITS, Project
from tests.support.result_lines import broken_limit, limit, line_of, undecided, upgrade
from tests.support.views import view_of, views_of

TEXT = "/home/me/models/m.onnx is not an ONNX model: a field is cut short; export it again"


def broken_file(number: int, text: str = TEXT) -> dict[str, Any]:
    """Return an item whose model could not be loaded."""
    case = f"here-cpu-b{number}"
    message = f"models/m.yaml:4: digits {case}: {text}\nreproduce: pytest models/m.yaml::{case}"
    fields: dict[str, Any] = {"limits": [], "estimates": {}, "outcome": "failed"}
    return line_of(number, "ERROR", message=message, **fields)


def test_an_upgrade_tells_the_quantity_that_decided_with_fewer_figures_where_room_is_scarce() -> (
    None
):
    assert reasons_of(view_of(upgrade())) == [
        "latency ×1.079 (1.071 to 1.088), tolerance 3 %",
        "latency ×1.079, tolerance 3 %",
        "latency ×1.079",
    ]


def test_several_quantities_are_counted() -> None:
    line = upgrade()
    memory = {**line["comparisons"][0], "quantity": "peak_memory", "of": "rounds"}
    passed = {**memory, "quantity": "load_time", "verdict": "PASSED"}
    line["comparisons"] = [memory, *line["comparisons"], passed]
    first, *_ = reasons_of(view_of(line))
    assert first == "latency ×1.079 (1.071 to 1.088), tolerance 3 %, and 1 more"


def test_a_limit_tells_what_was_measured_and_the_bound() -> None:
    forms = [
        "latency p50 4.00 ms (3.00 ms to 5.00 ms), limit at most 1.00 ms",
        "latency p50 4.00 ms, limit at most 1.00 ms",
        "latency p50 4.00 ms, limit 1.00 ms",
        "p50 4.00 ms",
    ]
    assert reasons_of(view_of(broken_limit())) == forms
    assert reasons_of(view_of(undecided()))[0].endswith(", limit at most 4.00 ms")
    share = {"value": 0.99, "low": 0.98, "high": 0.995, "unit": "fraction", "lacking": ""}
    bound = {"quantity": "top1", "min": 0.999, "place": "m.yaml:4", "verdict": "FAILED"}
    line = broken_limit(estimates={"top1": share}, limits=[bound])
    assert reasons_of(view_of(line))[1] == "top1 99.00 %, limit at least 99.90 %"


def test_an_error_tells_its_first_line_without_what_its_node_id_says() -> None:
    assert reasons_of(view_of(broken_file(1))) == [
        TEXT,
        "m.onnx is not an ONNX model: a field is cut short; export it again",
        "m.onnx is not an ONNX model: a field is cut short",
    ]


def failed(number: int, message: str, **fields: Any) -> dict[str, Any]:
    """Return an item without figures that failed with a message."""
    plain: dict[str, Any] = {"limits": [], "estimates": {}, "outcome": "failed"}
    whole: dict[str, Any] = {"verdict": "ERROR", "message": message, **plain, **fields}
    return line_of(number, **whole)


@pytest.mark.parametrize(
    "text",
    [
        "stacks.yaml:7: the stack old needs another Python",
        "the reference was read from ref.yaml:12: it has 3 rows",
    ],
)
def test_the_place_of_another_file_and_what_stands_before_it_are_told(text: str) -> None:
    for begin in ("", "models/m.yaml:4: digits here-cpu-b1: "):
        message = f"{begin}{text}\nreproduce: pytest"
        assert reasons_of(view_of(failed(1, message)))[0] == text


OWN_TEST = """mlms_case = Case(x)

    def test_own(mlms_case):
>       assert recall(mlms_case) > 0.9
E       {0}
E       assert 0.8 > 0.9

test_own.py:7: AssertionError"""


def test_of_a_traceback_what_was_raised_last_is_told() -> None:
    first, last = OWN_TEST.format("KeyError: 3"), OWN_TEST.format("ValueError: recall 0.8")
    chained = f"{first}\n\nDuring handling of the above exception, another occurred:\n\n{last}"
    frames = '  File "x.py", line 3, in test\n    f()\n    ~^^\n'
    native = f"Traceback (most recent call last):\n{frames}ValueError: recall 0.8\nof all"
    for message in (last, chained, native):
        assert reasons_of(view_of(failed(1, message)))[0] == "ValueError: recall 0.8"
        (row,) = [
            line
            for line in step_summary([view_of(failed(1, message))]).splitlines()
            if line.startswith("| digits")
        ]
        assert "ValueError: recall 0.8" in row
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        f"  | {frames.strip()}\n"
        "  | ExceptionGroup: several (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | ValueError: recall 0.8"
    )
    several = "ExceptionGroup: several (2 sub-exceptions)"
    assert reasons_of(view_of(failed(1, group)))[0] == several
    quoted = f"the agent died; its log ends:\n{last}\nreproduce: pytest m.yaml"
    assert reasons_of(view_of(failed(1, quoted)))[0] == "the agent died; its log ends:"


def test_an_error_after_an_upgrade_regressed_or_a_limit_was_broken_tells_both() -> None:
    late: dict[str, Any] = {"verdict": "ERROR", "message": "late\nreproduce: pytest"}
    change = "latency 264 µs → 285 µs, ×1.079 (1.071 to 1.088), tolerance 3 % more"
    whole, *others = reasons_of(view_of({**upgrade(), **late}))
    assert (whole, others[0]) == (f"late; REGRESSED as well: {change}", "late")
    whole, *_ = reasons_of(view_of({**broken_limit(), **late}))
    assert whole.startswith("late; FAILED as well: latency p50 4.00 ms (3.00 ms to 5.00 ms), limit")
    passed = {**line_of(1), **late}
    assert reasons_of(view_of(passed)) == ["late", "late", "late"]


def test_an_empty_text_is_told_by_its_verdict() -> None:
    for message in ("", "digits here-cpu-b1: \nreproduce: pytest"):
        assert reasons_of(view_of(failed(1, message)))[0] == "ERROR"


def test_a_run_that_can_not_be_trusted_tells_why_and_no_figures() -> None:
    message = "digits here-cpu-b1: the GPU was throttled\nreproduce: pytest"
    line = line_of(1, "INVALID", limits=[limit("INVALID", 0.001)], message=message)
    assert reasons_of(view_of(line))[0] == "the GPU was throttled"


def test_the_longest_form_that_has_room_is_taken_and_the_shortest_is_cut() -> None:
    forms = ["latency ×1.079, tolerance 3 %", "latency ×1.079"]
    assert [fitted(forms, room) for room in (29, 28, 14, 13, 0)] == [
        forms[0],
        forms[1],
        forms[1],
        "latency ×1.0…",
        "l…",
    ]


def test_items_of_one_text_are_grouped_and_those_of_figures_of_their_own_are_not() -> None:
    lines = [broken_file(1), broken_limit(2, message="x"), broken_limit(3, message="x")]
    lines += [broken_file(8), broken_file(9, "another text")]
    groups = [[item.case[-2:] for item in group] for group in by_reason(views_of(lines))]
    assert groups == [["b1", "b8"], ["b2"], ["b3"], ["b9"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aten.log is not implemented", "prims.log is not implemented"),
        ("data/fold-1.log is missing", "data/fold-2.log is missing"),
        ("3 of 7 outputs differ\n  in row 4", "3 of 7 outputs differ\n  in row 5"),
    ],
)
def test_texts_that_differ_anywhere_but_in_an_agents_log_are_two_reasons(
    one: str, other: str
) -> None:
    assert len(by_reason(views_of([failed(1, one), failed(2, other)]))) == 2
    logs = [f"it died (log: /r/agents/onnxruntime-gw{number}-{number}.log)" for number in (1, 2)]
    assert len(by_reason(views_of([failed(n, text) for n, text in enumerate(logs)]))) == 1


def test_items_of_one_text_that_ended_in_different_ways_are_not_one() -> None:
    undecided_one = failed(1, "x", verdict="INCONCLUSIVE", outcome="undecided")
    lines = [undecided_one, failed(2, "x"), failed(3, "x", verdict="FAILED"), failed(4, "x")]
    groups = [[item.case[-2:] for item in group] for group in by_reason(views_of(lines))]
    assert groups == [["b1"], ["b2", "b4"], ["b3"]]


@pytest.mark.parametrize("option", ["-vv", "--tb=line", "--tb=no"])
def test_no_text_is_cut_where_all_was_asked_for_or_no_section_has_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("CI", "true")
    project.replace_file("digits_cnn.onnx", (DIGITS / "digits_cnn.onnx").read_bytes()[:3000])
    lines = project.run("-k", "accuracy", option).outlines
    (short,) = [line for line in lines if line.startswith("ERROR manifests")]
    assert "is not an ONNX model" in short
    assert "…" not in short


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_a_model_that_can_not_be_loaded_is_told_once_and_the_other_items_name_the_first(
    project: Project, monkeypatch: pytest.MonkeyPatch, columns: str, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("CI", raising=False)
    project.replace_file("digits_cnn.onnx", (DIGITS / "digits_cnn.onnx").read_bytes()[:3000])
    result = project.run(*workers)
    lines = result.outlines
    count = len(project.items())
    assert count > 3
    summary = lines.index(next(line for line in lines if "short test summary" in line))
    whole = [line for line in lines[:summary] if "is not an ONNX model" in line]
    named = [line for line in lines[:summary] if ": the same as manifests/digits.yaml::" in line]
    assert (len(whole), len(named)) == (1, count - 1)
    assert len([line for line in lines if line.startswith("reproduce: ")]) == 1
    (without,) = [line for line in lines if line.startswith("ERROR  ")]
    assert without.endswith(f", and {count - 1} more for the same reason")
    short = [line for line in lines[summary:] if line.startswith("ERROR ")]
    assert len(short) == count
    assert all(len(line) <= int(columns) for line in short)


def test_a_broken_limit_is_told_whole_once_and_then_in_a_line_with_its_figures(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("CI", "true")
    project.set_thresholds("  top1: {min: 0.999}")
    result = project.run("-k", "accuracy")
    output = result.stdout.str()
    assert output.count("worst inputs:") == output.count("is not at least 99.90 %") == 1
    figures = "top1 99.00 (97.84 to 99.54) %, limit at least 99.90 %"
    assert f"  {figures}" in result.outlines  # below the row of the table
    (short,) = [line for line in result.outlines if line.startswith("FAILED manifests")]
    assert short.endswith(" - top1 99.00 %, limit at least 99.90 %")
    assert len(short) <= 100
    (annotation,) = [line for line in result.outlines if line.startswith("::error")]
    assert f"::{figures.replace('%', '%25')}%0Athe log of this job" in annotation


COLOURED = """
import pytest

@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_own(mlms_case):
    pytest.fail("\\x1b[31mred\\x1b[0m " + "x" * 99, pytrace=False)
"""


def test_colours_of_a_text_are_not_cut_off_in_the_short_summary(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    project.pytester.makepyfile(test_own=COLOURED)
    lines = project.run("test_own.py").outlines
    (short,) = [line for line in lines if line.startswith("FAILED test_own.py::")]
    assert " - \\x1b[31mred" in short
    assert "\x1b" not in short


WARNING = """
import warnings
import pytest
from pytest_mlms.warning_types import MlmsContention, MlmsNotGated

@pytest.mark.parametrize("number", range(3))
def test_three(number):
    warnings.warn_explicit(f"text {number}", MlmsNotGated, "m.yaml", 3 + number)

def test_one():
    warnings.warn_explicit("the core was busy", MlmsContention, "m.yaml", 9)
    warnings.warn("another's")
"""


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "xdist"])
def test_warnings_of_a_kind_are_written_once_with_their_count_below_others(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(WARNING)
    result = pytester.runpytest_subprocess("-q", *workers)
    assert result.parseoutcomes() == {"passed": 4, "warnings": 5}
    result.stdout.fnmatch_lines(
        [
            "*= warnings summary =*",
            "*UserWarning: another's",
            "-- Docs: *",
            "*- mlms: warnings -*",
            "  m.yaml:3: MlmsNotGated: text 0",
            "    and 2 more MlmsNotGated: test_three[[]1[]], test_three[[]2[]]",
            "  m.yaml:9: MlmsContention: the core was busy",
        ]
    )
    output = result.stdout.str()
    assert output.count("text 0") == output.count("the core was busy") == 1
    assert "text 1" not in output


def test_of_warnings_that_have_no_kind_each_text_is_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WARNING.replace("MlmsNotGated", "MlmsWarning"))
    result = pytester.runpytest_subprocess("-q")
    lines = [f"  m.yaml:{3 + number}: MlmsWarning: text {number}" for number in range(3)]
    result.stdout.fnmatch_lines(lines)
    assert "more MlmsWarning" not in result.stdout.str()


def test_warnings_that_are_disabled_are_counted_and_not_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WARNING)
    result = pytester.runpytest_subprocess("-q", "--disable-warnings")
    assert "text" not in result.stdout.str()
    assert result.parseoutcomes() == {"passed": 4, "warnings": 5}


def test_ours_alone_have_no_summary_of_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WARNING.replace('    warnings.warn("another\'s")\n', ""))
    result = pytester.runpytest_subprocess("-q", "-rA")
    assert "warnings summary" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*- mlms: warnings -*", "*= short test summary info =*"])


def test_each_warning_is_written_with_v(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WARNING)
    lines = [f"  m.yaml:{3 + number}: MlmsNotGated: text {number}" for number in range(3)]
    result = pytester.runpytest_subprocess("-v")
    result.stdout.fnmatch_lines(lines)
    assert " more " not in result.stdout.str()


COLLECTED = """
import warnings
from pytest_mlms.warning_types import MlmsNotGated

def pytest_collection_modifyitems(config, items):
    for place, text in {texts!r}:
        warnings.warn_explicit(text, MlmsNotGated, place, 1)
"""


def test_warnings_of_a_run_are_told_apart_where_their_place_or_advice_does_not_do_so(
    pytester: pytest.Pytester,
) -> None:
    ungated = [(f"{name}.yaml", f"no limit judges {name}; add thresholds") for name in "abc"]
    gates = [("a.yaml", f"--mlms-gate={name} judges nothing; leave it out") for name in "pq"]
    pytester.makeconftest(COLLECTED.format(texts=[*ungated[1:], *gates]))
    pytester.makepyfile("def test_one(): pass")
    result = pytester.runpytest_subprocess("-q")
    result.stdout.fnmatch_lines(
        [
            "  b.yaml:1: MlmsNotGated: no limit judges b; add thresholds",
            "    and 1 more MlmsNotGated: c.yaml:1",
            "  a.yaml:1: MlmsNotGated: --mlms-gate=p judges nothing; leave it out",
            "  a.yaml:1: MlmsNotGated: --mlms-gate=q judges nothing; leave it out",
        ]
    )


def test_a_failed_item_is_summed_up_where_pytest_starts_in_another_folder(project: Project) -> None:
    project.edit("top1: {min: 0.95}", "top1: {min: 1.0}")
    (project.folder / "pytest.ini").write_text("[pytest]\n")
    result = project.run("-c", "manifests/pytest.ini", "--rootdir=manifests", "-k", "accuracy")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED manifests/digits.yaml::*top1*"])
    result.stderr.no_fnmatch_line("*Traceback*")
