"""Table of an import: how many manifests were read, written and refused, by their kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_mlms.author.legacy.importing import Imported

_HEADING = "framework    modality               read  written  accuracy  speed only  refused"


def table_lines(outcomes: Sequence[Imported]) -> Iterator[str]:
    """Yield the lines of a table by framework and modality, and the reasons of refusals."""
    yield _HEADING
    yield from _groups(outcomes)
    yield _line("all", "", outcomes)
    yield from _reasons(outcomes)


def _groups(outcomes: Sequence[Imported]) -> Iterator[str]:
    """Yield a line for each framework and modality."""
    groups: dict[tuple[str, str], list[Imported]] = {}
    for outcome in outcomes:
        group = groups.setdefault((outcome.framework, outcome.modality), [])
        group.append(outcome)
    for framework, modality in sorted(groups):
        members = groups[framework, modality]
        yield _line(framework, modality, members)


def _line(framework: str, modality: str, outcomes: Sequence[Imported]) -> str:
    """Return the line of some manifests."""
    read = len(outcomes)
    refused = sum(bool(outcome.kind) for outcome in outcomes)
    accuracy = sum(outcome.has_accuracy for outcome in outcomes)
    written = read - refused
    speed = written - accuracy
    names = f"{framework:<12} {modality:<22}"
    return f"{names} {read:4}  {written:7}  {accuracy:8}  {speed:10}  {refused:7}"


def _reasons(outcomes: Sequence[Imported]) -> Iterator[str]:
    """Yield the reasons of refusals, the most frequent first; nothing where there are none."""
    reasons = Counter(outcome.kind for outcome in outcomes)
    del reasons[""]
    if reasons:
        yield ""
        yield "refused, by reason:"
    for reason, count in reasons.most_common():
        yield f"{count:6}  {reason}"
