"""The lines of probes and answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_mlms.explain.bisect.judgement import Judgement
from pytest_mlms.explain.bisect.record import Conclusion, Probe, Record
from pytest_mlms.explain.bisect.search import AnswerKind, Outcome
from pytest_mlms.explain.bisect.text import answer_lines, figure_text, probe_lines
from tests.support.questions import QUESTION

WIDTH = 100
SLOWER = Judgement(
    outcome=Outcome.BAD,
    quantity="latency",
    verdict="REGRESSED",
    a=0.1,
    b=0.108,
    unit="s",
    of="rounds",
    ratio=1.08,
    low=1.071,
    high=1.089,
    tolerance=0.03,
    layers=(("conv", "Conv", 0.001, 0.009, 0.008, 1.0), ("all layers", "", 0.1, 0.108, 0.008, 1.0)),
)
CRASH = Judgement(Outcome.BAD, "crash", "CRASHED", reason="the agent died: exit status 7")
OUTPUTS = replace(SLOWER, quantity="agreement", of="outputs", layers=())


def record(quantity: str | None = "latency", culprits: tuple[str, ...] = ()) -> Record:
    made = Record(QUESTION, quantity=quantity, package="pace", culprits=list(culprits))
    made.changed = ["numpy", "pace"] if culprits else []
    return made


def probe(judgement: Judgement, **fields: object) -> Probe:
    made = Probe("pace-1.0", "pace-1.5", "search", 1, judgement, run="r", seconds=12.4)
    return replace(made, **fields)  # type: ignore[arg-type]


def conclusion(kind: AnswerKind, judgement: Judgement = SLOWER, **fields: object) -> Conclusion:
    made = Conclusion(kind, "pace-1.4", "pace-1.5", "pace", "1.4", "1.5", (), (), judgement)
    return replace(made, **fields)  # type: ignore[arg-type]


def told(kind: AnswerKind, judgement: Judgement = SLOWER, **fields: object) -> str:
    made = record(judgement.quantity)
    lines = list(answer_lines(made, conclusion(kind, judgement, **fields)))
    assert max(map(len, lines)) <= WIDTH
    return "\n".join(lines)


def test_a_probe_is_a_line() -> None:
    (line,) = probe_lines(probe(SLOWER), record())
    expected = "1.5 against 1.0 REGRESSED latency ×1.080 (1.071 to 1.089) 12 s"
    assert line.split() == expected.split()
    (line,) = probe_lines(probe(SLOWER, purpose="ends", effort=2), record())
    assert line.endswith("ends, again, 12 s")
    (line,) = probe_lines(probe(SLOWER, purpose="neighbours", effort=2), record())
    assert line.endswith("fresh data, 12 s")


def test_an_error_of_any_length_is_one_line_more() -> None:
    unknown = Judgement(Outcome.UNDECIDED, "latency", "ERROR", reason="long " * 100)
    names = {"before": "pace-" + "1." * 30, "after": "pace-" + "2." * 30}
    lines = list(probe_lines(probe(unknown, **names), record()))
    assert len(lines) == 2
    assert max(map(len, lines)) <= WIDTH


def test_a_release_that_cannot_be_installed_tells_the_last_line_of_the_installer() -> None:
    missing = Judgement(
        Outcome.UNAVAILABLE, "", "SKIPPED", reason="first\nERROR: no such wheel\n\n"
    )
    first, second = probe_lines(probe(missing), record())
    assert first == "  1.5: can't be installed here, and is left out"
    assert second == "    ERROR: no such wheel"


@pytest.mark.parametrize(
    ("judged", "text"),
    [
        (SLOWER, "latency ×1.080 (1.071 to 1.089)"),
        (replace(SLOWER, high=None), "latency ×1.080 (1.071 to unbounded)"),
        (replace(SLOWER, high=1e29), "latency ×1.080 (1.071 to over 1000)"),
        (replace(OUTPUTS, ratio=3712.4), "agreement 3,712 times what is allowed"),
        (replace(OUTPUTS, ratio=1.234), "agreement 1.2 times what is allowed"),
        (replace(OUTPUTS, ratio=None), "agreement infinitely more than what is allowed"),
        (replace(OUTPUTS, ratio=0.0), "agreement of all outputs"),
        (replace(OUTPUTS, reason="'y' is (1,)"), "agreement can't be compared"),
        (
            replace(SLOWER, quantity="top1", of="inputs", ratio=-0.02, low=-0.03, high=-0.01),
            "top1 -2.00 % (-3.00 to -1.00 %)",
        ),
        (CRASH, ""),
    ],
)
def test_figures(judged: Judgement, text: str) -> None:
    assert figure_text(judged) == text


def test_a_release_that_is_found_has_its_ratio_and_the_layers_that_moved() -> None:
    text = told("found", others=("numpy 2.4.5 → 2.4.6",))
    assert text.startswith("latency became worse in pace 1.5 with numpy 2.4.6: ×1.080 (1.071 to ")
    assert "  100 ms → 108 ms" in text
    assert "conv (Conv)" in text
    assert "100 % of the change" in text
    assert "all layers" not in text
    assert "changed with it: numpy 2.4.5 → 2.4.6\n  --with numpy==2.4.5 has" in text


def test_a_package_that_changed_with_the_release_is_accused_with_it_in_the_first_line() -> None:
    both = ("numpy 1.26.4 → 2.4.6", "six 1.17.0 → none")
    first = "pace 1.5 with numpy 2.4.6, no six"
    assert told("found", others=both).startswith(f"latency became worse in {first}: ×1.080 ")
    assert told("found", CRASH, others=both).startswith(f"{first} crashes, and 1.4 does not:\n")
    unknown = replace(SLOWER, outcome=Outcome.UNDECIDED, verdict="INCONCLUSIVE")
    assert f"worse about {first}, but is undecided" in told("range", unknown, others=both)
    text = told("range", between=("1.4.1",), others=both[:1])
    assert text.startswith("latency became worse in one of 2 releases of pace with numpy 2.4.6:\n")
    many = tuple(f"a{number} 1 → 2" for number in range(20))
    assert told("found", others=many).startswith(
        "latency became worse in pace 1.5 with 20 other packages: ×1.080 "
    )


def test_a_crash_has_its_error() -> None:
    text = told("found", CRASH)
    assert text == "pace 1.5 crashes, and 1.4 does not:\n  the agent died: exit status 7"


def test_other_answers_say_what_is_known() -> None:
    passed = replace(SLOWER, outcome=Outcome.GOOD, verdict="PASSED", ratio=1.01)
    assert told("gradual", passed).startswith("gradual, or not monotone: no release alone")
    text = told("range", between=("1.4.1", "1.4.2"), spent=True)
    assert text.startswith(
        "latency became worse in one of 3 releases of pace:\n  1.4.1, 1.4.2, 1.5"
    )
    assert "--probes" in text
    unknown = replace(SLOWER, outcome=Outcome.UNDECIDED, verdict="INCONCLUSIVE", reason="why")
    assert "about pace 1.5, but is undecided there" in told("range", unknown)
    assert told("same", passed).startswith("the ends don't differ in latency: PASSED, latency ×1.0")
    assert told("same", unknown).endswith("latency: INCONCLUSIVE\n  why")
    better = replace(passed, verdict="IMPROVED")
    assert told("same", better).endswith(
        "exchange --good and --bad to find the release that made it better"
    )


def test_packages_that_are_worse_together_are_all_named() -> None:
    made = record(culprits=("numpy", "pace"))
    answer = conclusion("range", package="numpy pace", old="", new="")
    lines = list(answer_lines(made, answer))
    assert lines[0] == "latency is worse with these packages: numpy, pace"
    assert [line for line in lines if "fewer may be enough" in line]
    made.minimal = True
    text = "\n".join(answer_lines(made, answer))
    assert "latency is worse with these packages, and not without one of them: numpy" in text
    assert "fewer" not in text
    assert lines[1].startswith("  REGRESSED, latency ×1.080")
