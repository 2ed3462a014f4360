"""Our warnings at the end of a run."""

from __future__ import annotations

import pytest

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
