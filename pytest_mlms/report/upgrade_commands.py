"""Commands for a regressed upgrade: to make a bundle, to find the culprit, and to run a bundle."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from pytest_mlms.records import regressed_comparison
from pytest_mlms.redaction import anonymous
from pytest_mlms.report.upgrade_software import software_of
from pytest_mlms.repro.expectation import can_reduce, can_replay
from pytest_mlms.stacks.exact_packages import NONE
from pytest_mlms.upgrade import culprit
from pytest_mlms.upgrade.labels import percent
from pytest_mlms.views.item import ItemView

__all__ = ["culprit_command", "making_commands", "running_commands"]


def making_commands(item: ItemView, results: str, is_bisected: bool) -> Iterator[str]:
    """Yield the commands for whoever has the results and the manifest, each below its meaning.

    ``results`` is the run's folder. Whoever has bisected knows the last command.
    """
    place = f"{results}::{_node(item)}"
    compared = regressed_comparison(item.comparisons)
    if compared is None or can_replay(compared.quantity, compared.of):
        yield "# a zip with the model, its inputs and both stacks, which runs by: python repro.zip"
        yield shlex.join(["mlms", "repro", place, "--out", "repro.zip"])
        yield "# the same with random weights, where the model can't be shared"
        yield shlex.join(["mlms", "repro", place, "--without-model", "--out", "repro.zip"])
    if compared is None or can_reduce(compared.quantity, compared.of):
        yield "# the smallest part of an ONNX model that still shows it"
        yield shlex.join(["mlms", "reduce", place])
    command = "" if is_bisected else culprit_command(item)
    if command:
        yield "# the release that did it, that part, the bundle and this report in one go"
        yield command


def culprit_command(item: ItemView) -> str:
    """Return the command that finds the release that made an upgrade worse.

    "" where the framework's versions aren't known, or the same.
    """
    changed = software_of(item).framework
    if changed is None or NONE in changed:
        return ""
    file, _, _ = _node(item).partition("::")
    where = (item.device, item.batch_size, item.variant, item.scenario, item.shape)
    point = culprit.point_id(file, *where)
    good, bad = (f"{changed.package}=={version}" for version in (changed.a, changed.b))
    compared = regressed_comparison(item.comparisons)
    if compared is None:
        return culprit.culprit_command(point, good, bad, "crash", item.culprit_options)
    quantity = compared.quantity
    command = culprit.culprit_command(point, good, bad, quantity, item.culprit_options)
    places = item.terms.places if item.terms else {}
    if places.get(compared.quantity, "").startswith("--"):
        command += f" --tolerance {shlex.quote(percent(compared.tolerance))}"
    return command


def running_commands(bundle: str) -> Iterator[str]:
    """Yield the commands for whoever gets a bundle, with what each does."""
    yield f"python {shlex.quote(bundle)}           # says what it will install and run, and asks"
    yield f"python {shlex.quote(bundle)} --help"


def _node(item: ItemView) -> str:
    """Return the item's id; of a manifest outside of pytest's root only the file's name."""
    file, separator, name = item.nodeid.partition("::")
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts:
        file = path.name
    return f"{file}{separator}{anonymous(name)}"
