"""Commands for a regressed upgrade: to make a bundle, to find the culprit, and to run a bundle."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from pytest_mlms.core.records import regressed_comparison
from pytest_mlms.core.redaction import anonymous
from pytest_mlms.decide.upgrade import culprit
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.explain.repro.expectation import can_reduce, can_replay
from pytest_mlms.provide.stacks.exact_packages import NONE
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.report.upgrade_software import software_of

_WITHOUT_ONNX = ("caffe", "caffe2", "cntk", "jax", "mxnet", "pytorch", "tensorflow", "tflite")
_OF_BUNDLES = ("--mlms-predictors", "--mlms-cache", "--mlms-allow-code")


def making_commands(item: ItemView, results: str, is_bisected: bool) -> Iterator[str]:
    """Yield the commands for whoever has the results and the manifest, each below its meaning.

    ``results`` is the run's folder. Whoever has bisected knows the last command.
    """
    if _is_of_settings(item):
        yield "# its sides differ in settings of their stacks, which no bundle and no release has"
        return
    making = ["mlms", "repro", f"{results}::{_node(item)}"]
    more = [word for word in _options(item) if word.startswith(_OF_BUNDLES)]
    compared = regressed_comparison(item.comparisons)
    reads_onnx = item.framework not in _WITHOUT_ONNX
    if compared is None or can_replay(compared.quantity, compared.of):
        yield "# a zip with the model, its inputs and both stacks, which runs by: python repro.zip"
        yield shlex.join([*making, "--out", "repro.zip", *more])
        if reads_onnx:
            yield "# the same with random weights, where an ONNX model can't be shared"
            yield shlex.join([*making, "--without-model", "--out", "repro-random.zip", *more])
    if reads_onnx and (compared is None or can_reduce(compared.quantity, compared.of)):
        yield "# the smallest part of an ONNX model that still shows it"
        yield shlex.join(["mlms", "reduce", making[-1], *more])
    command = "" if is_bisected else culprit_command(item)
    if command:
        yield "# the release that did it, that part, the bundle and this report in one go"
        yield command


def culprit_command(item: ItemView) -> str:
    """Return the command that finds the release that made an upgrade worse.

    "" where the framework's versions aren't known, or the same, or a wheel's.
    """
    changed = software_of(item).framework
    if changed is None or NONE in changed or "://" in f"{changed.a} {changed.b}":
        return ""
    file, _, _ = _node(item).partition("::")
    where = (item.device, item.batch_size, item.variant, item.scenario, item.shape)
    point = culprit.point_id(file, *where)
    good, bad = (f"{changed.package}=={version}" for version in (changed.a, changed.b))
    compared = regressed_comparison(item.comparisons)
    if compared is None:
        return culprit.culprit_command(point, good, bad, "crash", _options(item))
    more = _options(item)
    places = item.terms.places if item.terms else {}
    if places.get(compared.quantity, "").startswith("--"):
        more += ["--tolerance", percent(compared.tolerance)]
    return culprit.culprit_command(point, good, bad, compared.quantity, more)


def running_commands(bundle: str) -> Iterator[str]:
    """Yield the commands for whoever gets a bundle, with what each does."""
    yield f"python {shlex.quote(bundle)}           # says what it will install and run, and asks"
    yield f"python {shlex.quote(bundle)} --help"


def _is_of_settings(item: ItemView) -> bool:
    """Return whether options, variables or variants differ, and not only software."""
    has_others = item.against is not None and bool(item.against.options or item.against.variant)
    return has_others or (item.launch_against is not None and not software_of(item).differing)


def _options(item: ItemView) -> list[str]:
    """Return the options of the item's session; of a folder outside of it only the name."""
    words = []
    for word in item.culprit_options:
        name, equals, value = word.partition("=/")
        words.append(f"{name}={PurePosixPath(value).name}" if equals else word)
    return words


def _node(item: ItemView) -> str:
    """Return the item's id; of a manifest outside of pytest's root only the file's name."""
    file, separator, name = item.nodeid.partition("::")
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts:
        file = path.name
    return f"{file}{separator}{anonymous(name)}"
