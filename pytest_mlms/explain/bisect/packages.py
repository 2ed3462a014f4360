"""The packages that differ between two lock files: which of them made it worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.bisection import Bisection
from pytest_mlms.explain.bisect.delta_debugging import Changes, reduce_changes
from pytest_mlms.explain.bisect.releases import is_within, range_of
from pytest_mlms.explain.bisect.search import Answer, AnswerKind, Outcome, most_probes
from pytest_mlms.provide.stacks.exact_packages import parse_package
from pytest_mlms.provide.stacks.index import releases_of, settings_of

PYTHON = "Python"
_LONGEST_NAME = 2  # packages that a stack's name lists


@dataclass(frozen=True)
class PackageChange:
    """A package that differs: its requirement before and after, None where it isn't there.

    Python is such a package, too.
    """

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        old = _shown(self.old)
        new = _shown(self.new)
        return f"{self.name} {old} → {new}"

    @property
    def versions(self) -> tuple[Version, Version] | None:
        """Both versions, the older one first; None where these are no two releases in order."""
        if self.name == PYTHON:
            return None
        old = _release_of(self.old)
        new = _release_of(self.new)
        if old is None or new is None:
            return None
        return (old, new) if old < new else None


def _shown(requirement: str | None) -> str:
    """Return the version of a requirement, or the address that it is installed from."""
    if requirement is None:
        return "none"
    name, address, origin = requirement.partition(" @ ")
    if address:
        return origin
    return _text(name) or name


def _release_of(requirement: str | None) -> Version | None:
    if requirement is None or " @ " in requirement:
        return None
    try:
        return Version(_text(requirement))
    except InvalidVersion:
        return None


@dataclass(frozen=True)
class LockedEnds:
    """The good stack of a lock file, and what is to be changed to have the bad one."""

    good: Stack
    changes: tuple[PackageChange, ...]

    def stack(self, chosen: Changes) -> Stack:
        """Return the good stack with some of the changes."""
        changes = [self.changes[number] for number in chosen]
        return self._with(changes)

    def stack_of_release(self, change: PackageChange, version: str) -> Stack:
        """Return the good stack with another release of a package."""
        old, new = change.versions or (None, None)
        wanted = Version(version)
        if wanted == old:
            return self.good
        if wanted == new:
            return self._with([change])
        other = replace(change, new=f"{change.name}=={version}")
        made = self._with([other])
        name = f"good-with-{change.name}-{version}"
        return replace(made, name=name.replace("+", "-"))

    def _with(self, changes: Sequence[PackageChange]) -> Stack:
        if not changes:
            return self.good
        lines = {_key(line): line for line in self.good.requirements}
        python = self.good.python
        for change in changes:
            if change.name == PYTHON:
                python = change.new
            elif change.new is None:
                del lines[change.name]
            else:
                lines[change.name] = change.new
        name = self._name(changes)
        requirements = tuple(lines.values())
        return replace(self.good, name=name, python=python, requirements=requirements)

    def _name(self, changes: Sequence[PackageChange]) -> str:
        if len(changes) == len(self.changes):
            return "bad"
        if len(changes) <= _LONGEST_NAME:
            names = "-".join(change.name for change in changes)
            return f"good-with-{names}"
        numbers = [self.changes.index(change) for change in changes]
        digits = ".".join(str(number + 1) for number in numbers)
        return f"good-with-{digits}"


def _text(requirement: str | None) -> str:
    """Return the version of a requirement, "" where it has none."""
    text = requirement or ""
    _, _, version = text.partition("==")
    return version


def _key(requirement: str) -> str:
    package = parse_package(requirement)
    name = package.name if package else requirement
    return str(canonicalize_name(name))


def ends_of(good: Stack, bad: Stack) -> LockedEnds:
    """Return the good stack and what differs in the bad one.

    Raises MlmsError where nothing does, or where they have no packages.
    """
    if good.container or bad.container:
        problem = "the lock of a container's image has no packages to bisect"
        raise MlmsError(f"{problem}; name two releases instead")
    before = {_key(line): line for line in good.requirements}
    after = {_key(line): line for line in bad.requirements}
    changes = []
    if good.python != bad.python:
        changes.append(PackageChange(PYTHON, good.python, bad.python))
    for name in sorted({*before, *after}):
        old = before.get(name)
        new = after.get(name)
        if old != new:
            changes.append(PackageChange(name, old, new))
    if not changes:
        raise MlmsError("both lock files have the same packages for it; name two that differ")
    return LockedEnds(replace(good, name="good"), tuple(changes))


def bisect_packages(bisection: Bisection, ends: LockedEnds, limit: int | None) -> None:
    """Find the package that made it worse, then its release; the record has the answer then."""
    everything = tuple(range(len(ends.changes)))
    outcome = bisection.judge_twice(ends.good, ends.stack(everything), "ends")
    if outcome is not Outcome.BAD:
        _conclude(bisection, ends, list(ends.changes), "same", outcome)
        return

    def test(chosen: Changes) -> Outcome:
        return bisection.judge_twice(ends.good, ends.stack(chosen), "packages")

    reduction = reduce_changes(len(everything), test)
    culprits = [ends.changes[number] for number in reduction.changes]
    bisection.record.culprits = [change.name for change in culprits]
    bisection.record.minimal = reduction.minimal
    versions = _versions_between(bisection, culprits, ends.good)
    if len(versions) > 1:
        change = culprits[0]
        bisection.record.package = change.name
        bisection.record.releases = versions
        stacks = [ends.stack_of_release(change, version) for version in versions]
        most = limit or most_probes(len(stacks))
        answer = bisection.search(stacks, most)
        bisection.conclude(answer, stacks, versions)
        return
    worse = ends.stack(reduction.changes)
    judged = bisection.judge(ends.good, worse, "neighbours", 2)
    _conclude(bisection, ends, culprits, _kind_of(judged, len(culprits)), judged)


def _kind_of(judged: Outcome, count: int) -> AnswerKind:
    if judged is Outcome.GOOD:
        return "gradual"
    return "found" if judged is Outcome.BAD and count == 1 else "range"


def _versions_between(
    bisection: Bisection, culprits: Sequence[PackageChange], good: Stack
) -> list[str]:
    """Return the releases of the one culprit, the good one first; none if they aren't known."""
    if len(culprits) != 1:
        return []
    (culprit,) = culprits
    if culprit.versions is None:
        return []
    old, new = culprit.versions
    known = bisection.record.releases
    if known:
        return known
    ends = (old, new)
    pre = old.is_prerelease or new.is_prerelease
    try:
        wanted = range_of(culprit.name, ends)
        found = releases_of(wanted, settings_of(good), pre, good.python)
    except MlmsError as error:
        bisection.gate.show(f"the releases between {old} and {new} are not known: {error}")
        return []
    between = {release.version for release in found if is_within(release.version, ends)}
    versions = sorted({*ends, *between}, reverse=old > new)
    return list(map(str, versions))


def _conclude(
    bisection: Bisection,
    ends: LockedEnds,
    changes: Sequence[PackageChange],
    kind: AnswerKind,
    judged: Outcome,
) -> None:
    """Record an answer without a search: all of these changes together."""
    record = bisection.record
    record.package = " ".join(change.name for change in changes)
    numbers = tuple(ends.changes.index(change) for change in changes)
    stacks = [ends.good, ends.stack(numbers)]
    versions = ["", ""]
    if len(changes) == 1:
        (only,) = changes
        versions = [_text(only.old), _text(only.new)]
    answer = Answer(kind, 0, 1, record.measured, judged)
    bisection.conclude(answer, stacks, versions)
