"""Delta debugging against sets of changes that are known to be bad together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.explain.bisect.delta_debugging import Changes, reduce_changes
from pytest_mlms.explain.bisect.search import Outcome


@st.composite
def culprits(draw: st.DrawFn) -> tuple[int, set[int]]:
    count = draw(st.integers(1, 40))
    chosen = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    return count, chosen


@settings(max_examples=40)
@given(culprits())
def test_the_changes_that_are_bad_together_are_found(case: tuple[int, set[int]]) -> None:
    count, bad = case
    tested: list[Changes] = []

    def test(changes: Changes) -> Outcome:
        tested.append(changes)
        return Outcome.BAD if bad <= set(changes) else Outcome.GOOD

    assert reduce_changes(count, test) == (tuple(sorted(bad)), True)
    assert len(tested) == len(set(tested))
    assert () not in tested
    assert tuple(range(count)) not in tested


@settings(max_examples=40)
@given(st.integers(2, 64), st.data())
def test_one_culprit_takes_two_tests_a_halving_at_most(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, count - 1))
    tested = []

    def test(changes: Changes) -> Outcome:
        tested.append(changes)
        return Outcome.BAD if culprit in changes else Outcome.GOOD

    assert reduce_changes(count, test) == ((culprit,), True)
    assert len(tested) <= 2 * (count - 1).bit_length()


@settings(max_examples=40)
@given(st.integers(1, 12), st.data())
def test_what_is_found_is_bad_whatever_else_stays_undecided(
    count: int, data: st.DataObject
) -> None:
    everything = tuple(range(count))
    outcomes = {everything: Outcome.BAD}

    def test(changes: Changes) -> Outcome:
        return outcomes.setdefault(changes, data.draw(st.sampled_from(Outcome)))

    reduction = reduce_changes(count, test)
    assert outcomes[reduction.changes] is Outcome.BAD
    for change in reduction.changes:
        rest = tuple(other for other in reduction.changes if other != change)
        outcome = outcomes.get(rest, Outcome.GOOD if not rest else None)
        assert outcome is not Outcome.BAD
        assert not reduction.minimal or outcome is Outcome.GOOD


def test_changes_that_need_another_one_to_run_are_kept_together() -> None:
    def test(changes: Changes) -> Outcome:
        if (2 in changes) != (5 in changes):  # a library of one version with bindings of another
            return Outcome.UNDECIDED
        return Outcome.BAD if 5 in changes else Outcome.GOOD

    assert reduce_changes(8, test) == ((2, 5), False)
