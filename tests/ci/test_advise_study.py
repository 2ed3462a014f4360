"""Study of the search of ``mlms advise``."""

from __future__ import annotations

import sys

from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from advise_study import HEADER, answer, oracle, problem


def test_the_right_candidate_is_found_and_no_limit_is_broken() -> None:
    problems = [problem(seed) for seed in range(1000, 1040)]
    answers = [answer(asked) for asked in problems]
    best = [found.advice.best for found in answers]
    right = [asked.is_right(number) for asked, number in zip(problems, best, strict=True)]
    assert sum(right) >= 38
    for asked, number in zip(problems, best, strict=True):
        assert number is None or asked.rooms[number] >= 0


def test_the_oracle_is_right_with_fewer_processes() -> None:
    problems = [problem(seed) for seed in range(1000, 1010)]
    known = [oracle(asked) for asked in problems]
    assert all(
        asked.is_right(found.advice.best) for asked, found in zip(problems, known, strict=True)
    )
    ours = sum(answer(asked).processes for asked in problems)
    assert sum(found.processes for found in known) < ours


def test_the_same_processes_give_the_same_answer() -> None:
    asked = problem(7)
    assert answer(asked) == answer(asked)


def test_the_page_has_the_table_as_it_is_printed() -> None:
    assert (ROOT / "docs" / "advise.md").read_text().splitlines().count(HEADER) == 1
