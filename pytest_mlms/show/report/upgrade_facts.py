"""Facts of a regressed upgrade for strangers: machine, software, commands that show it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import regressed_comparison
from pytest_mlms.core.text import anonymous
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade import setting
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.explain.repro.expectation import can_reduce, can_replay
from pytest_mlms.keep.results.run_line import MachineRecord
from pytest_mlms.provide.stacks.declared import framework_of
from pytest_mlms.provide.stacks.exact import changed_packages, framework_releases
from pytest_mlms.provide.stacks.exact_packages import NONE, Difference
from pytest_mlms.show.pages.item import ItemView

_WITHOUT_ONNX = ("caffe", "caffe2", "cntk", "jax", "mxnet", "pytorch", "tensorflow", "tflite")
_OF_BUNDLES = ("--mlms-predictors", "--mlms-cache", "--mlms-allow-code")


def machine_facts(machine: MachineRecord) -> list[tuple[str, str]]:
    """Return what is known of a machine: CPU, cores, memory, system, GPUs and their driver."""
    model = (machine.cpu.get("model"), machine.cpu.get("microarchitecture"))
    cores = [
        f"{count} {kind}" for kind in ("physical", "logical") if (count := machine.cores.get(kind))
    ]
    limit = machine.cgroup_limits.get("cpus")
    if limit:
        cores.append(f"{limit:g} allowed")
    system = ", ".join(filter(None, (machine.system, machine.architecture)))
    if system and machine.virtual_machine:
        system += ", virtual machine"
    gpus = machine.gpus or ()
    drivers = [gpu.driver for gpu in gpus if gpu.driver]
    facts = [
        ("CPU", ", ".join(filter(None, model))),
        ("cores", ", ".join(cores)),
        ("memory", format_quantity(machine.memory, "B") if machine.memory else ""),
        ("system", system),
        *[("GPU", gpu.name) for gpu in gpus],
        ("GPU driver", machine.gpu_driver or next(iter(drivers), "")),
    ]
    return [(name, value) for name, value in facts if value]


@dataclass(frozen=True)
class UpgradeSoftware:
    """The packages that differ between both sides, and the versions that agents told alike.

    ``framework`` is the difference of a distribution of the framework; None where there is none.
    """

    differing: tuple[Difference, ...]
    alike: Mapping[str, str]
    framework: Difference | None


def software_of(item: ItemView) -> UpgradeSoftware:
    """Return the software of an upgrade; what the line doesn't tell is left out."""
    before = item.launch_against.exact if item.launch_against else ()
    after = item.launch.exact if item.launch else ()
    differing = changed_packages(before, after)  # by the lists of both environments
    listed = {difference.package for difference in differing}
    told_a = _told(item, "a")
    told_b = _told(item, "b")
    alike = {}
    for name in dict.fromkeys((*told_a, *told_b)):
        a = told_a.get(name, NONE)
        b = told_b.get(name, NONE)
        if a == b:
            alike[name] = a
        elif name not in listed:
            differing.append(Difference(name, a, b))
    differing.sort(key=lambda difference: not _is_framework(difference, item))
    first = differing[0] if differing else None
    framework = first if first is not None and _is_framework(first, item) else None
    return UpgradeSoftware(tuple(differing), alike, framework)


def _is_framework(difference: Difference, item: ItemView) -> bool:
    return framework_of(difference.package) == item.framework


def _told(item: ItemView, name: str) -> Mapping[str, str]:
    """Return the versions that the agents of a side told, and that of Python."""
    for measured in item.rounds:
        side = measured.sides.get(name)
        if side is not None:
            return {**side.versions, "Python": side.python} if side.python else side.versions
    return {}


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
    if is_bisected:
        return
    try:
        command = culprit_command(item)
    except StackError as error:
        yield f"# {setting.search_instead(str(error))}"
        return
    if command:
        yield "# the release that did it, that part, the bundle and this report in one go"
        yield command


def culprit_command(item: ItemView) -> str:
    """Return the command that finds the release that made an upgrade worse, "" for none.

    Raises StackError where an index has not both releases.
    """
    packages = [launch.exact if launch else () for launch in (item.launch_against, item.launch)]
    told = [_told(item, side) for side in ("a", "b")]
    changed = framework_releases(item.framework, packages, told)
    if changed is None:
        return ""
    if item.culprit_lacking:
        raise StackError(item.culprit_lacking)
    file, _, _ = _node(item).partition("::")
    where = (item.device, item.batch_size, item.variant, item.scenario, item.shape)
    point = setting.point_id(file, *where)
    good, bad = (f"{changed.package}=={version}" for version in (changed.a, changed.b))
    compared = regressed_comparison(item.comparisons)
    if compared is None:
        return setting.culprit_command(point, good, bad, "crash", _options(item))
    more = _options(item)
    places = item.terms.places if item.terms else {}
    if places.get(compared.quantity, "").startswith("--"):
        more += ["--tolerance", percent(compared.tolerance)]
    return setting.culprit_command(point, good, bad, compared.quantity, more)


def running_commands(bundle: str) -> Iterator[str]:
    """Yield the commands for whoever gets a bundle, with what each does."""
    yield f"python {shlex.quote(bundle)}           # says what it will install and run, and asks"
    yield f"python {shlex.quote(bundle)} --help"


def _is_of_settings(item: ItemView) -> bool:
    """Return whether options, variables or variants differ, and not only software."""
    against = item.against
    has_others = against is not None and (against.options is not None or bool(against.variant))
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
