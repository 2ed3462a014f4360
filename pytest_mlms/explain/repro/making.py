"""A bundle of an item of a run: its model, the inputs that matter, both stacks, what was seen."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.core.arrays import Array, Arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import DamagedFile, read_arrays, read_regular
from pytest_mlms.core.recorded import recorded_launch
from pytest_mlms.core.records import Stack, device_name
from pytest_mlms.core.serialization import parse_json
from pytest_mlms.core.text import redact_all
from pytest_mlms.decide.upgrade.output_verdict import OWN_THREADS, TIMED
from pytest_mlms.explain.repro.bundle import Bundle, Expectation
from pytest_mlms.explain.repro.check import launch_of
from pytest_mlms.explain.repro.expectation import expectation_of
from pytest_mlms.explain.repro.items import FoundItem
from pytest_mlms.explain.repro.replay.record import ANSWERS, OUTPUTS
from pytest_mlms.explain.repro.sides import stack_of
from pytest_mlms.explain.repro.software import ExactSide, SideSource, new_side, old_side
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.results.recorded_manifest import case_of_line
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences, rounding_share
from pytest_mlms.measure.evaluate.inputs import edge_batches, random_batch
from pytest_mlms.measure.evaluate.output_sweep import rules_of
from pytest_mlms.measure.evaluate.scoring import place_of
from pytest_mlms.measure.evaluate.timed_inputs import first_batch
from pytest_mlms.measure.pipeline import Dataset, without_corrupt
from pytest_mlms.measure.pipeline.dataset import open_dataset_of
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.artifacts.fetch import CaseFiles, fetch_files
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.recorded import HIDDEN
from pytest_mlms.provide.stacks.trust import Trust
from pytest_mlms.provide.stacks.variables import is_secret_name

_TIMEOUT = 600.0  # seconds for an answer of an agent
_MOST_BYTES = 1 << 20  # of worst.json
_FEW = 4  # inputs that outputs are compared for, where a batch size holds as many
_INDEX = "input"  # in outputs.npz, the number of each input
_REFERENCE = "reference_"
_RANDOM_INPUT = re.compile(r"random input (\d+) of seed (\d+)")


@dataclass(frozen=True)
class Making:
    """Settings of making a bundle; ``quantity`` is one of an upgrade, or None for the first.

    ``results`` is the folder of runs, ``trusted`` the names of those whose stacks are made as they
    tell.
    """

    predictors: Mapping[str, Path]
    cache: Path
    show: Show
    results: Path
    trusted: Collection[str] = ()
    quantity: str | None = None
    allow_code: bool = False
    trust: Trust = field(default_factory=Trust)


def bundle_of_item(found: FoundItem, making: Making) -> Bundle:
    """Return the bundle of an item. The stack that works is made in the cache if needed.

    Raises MlmsError where nothing failed, where the files are not those that were measured, and for
    what a bundle can't have.
    """
    line = found.line
    expected = expectation_of(line, making.quantity)
    if line["framework"] not in making.predictors:
        problem = f"there is no predictor for {line['framework']}"
        raise MlmsError(f"{problem}; name its folder with --mlms-predictors")
    predictor = making.predictors[line["framework"]]
    case = replace(case_of_line(line, making.results), scenario=None)
    loaded = case.loaded
    making = replace(making, trust=_trust(loaded, found, making))
    files = fetch_files(loaded, case.model, making.cache)
    source = SideSource(line, predictor, making.trust, making.cache)
    new = new_side(source)
    old = old_side(source) if line["kind"] == "upgrade" else None
    _check_sides(line, new, old)
    point = f"{loaded.manifest.name} on {case.device}"
    bundle = Bundle(
        title=f"{point}: {_what(new, old)}",
        predictor=predictor,
        files=files.model,
        device=device_name(case.device),
        threads=None if _is_of_own_threads(line) else case.threads,
        options=_without_secrets(line["options"]),
        inputs={},
        old=old.side if old else None,
        new=new.side,
        expected=expected,
        wheels=tuple(dict.fromkeys((*(old.wheels if old else ()), *new.wheels))),
        notes=tuple(_notes(line, new, old)),
    )
    return _with_inputs(bundle, case, files, found, making)


def _trust(loaded: LoadedManifest, found: FoundItem, making: Making) -> Trust:
    """Return what is trusted of an item's run beside versions."""
    declared = project_stacks([loaded.path])
    return Trust.of_run(found.run, making.trusted, declared.values())


def _check_sides(line: Mapping[str, Any], new: ExactSide, old: ExactSide | None) -> None:
    """Raise MlmsError where options or variants differ, as a bundle has these once, or nothing."""
    if old is None:
        return
    against = line["against"]
    has_others = against.get("variant") or against.get("options") is not None
    if has_others or old.side._replace(name=new.side.name) == new.side:
        problem = "its sides differ in options, variants or variables that no bundle can have"
        advice = f"run the item again: {line.get('reproduce') or 'pytest'}"
        raise MlmsError(f"{line['nodeid']}: {problem}; {advice}")


def _what(new: ExactSide, old: ExactSide | None) -> str:
    if old is None:
        return new.side.name
    return f"{old.side.name} → {new.side.name}"


def _is_of_own_threads(line: Mapping[str, Any]) -> bool:
    """Return whether outputs differ where frameworks choose how many threads they use, only."""
    outputs = line.get("outputs") or {}
    elsewhere = outputs.get("elsewhere") or ()
    return OWN_THREADS in elsewhere and TIMED not in elsewhere and not outputs["beyond"]


def _with_closeness(
    expected: Expectation, case: Case, line: Mapping[str, Any], own: Mapping[str, str]
) -> Expectation:
    """Return an expectation with what the item took for the same output, by the model's names."""
    if expected.kind not in (OUTPUTS, ANSWERS):
        return expected
    agreement = case.upgrade_agreement if case.kind == "upgrade" else case.agreement
    if agreement is not None and expected.kind == OUTPUTS:
        expected = expected._replace(rtol=agreement.rtol, atol=agreement.atol)
    found = (line.get("outputs") or {}).get("outputs") or ()
    allowed = {one["name"]: one.get("allowed") or 0.0 for one in found}
    usual = rounding_share(np.dtype(np.float32), case.device)
    rules: dict[str, dict[str, Any]] = {}
    for name, rule in rules_of(case).items():
        share = max(usual, allowed.get(name, 0.0))
        rules[own.get(name, name)] = {"unlike": rule.unlike, "share": share}
    return expected._replace(rules=rules)


def _notes(line: Mapping[str, Any], new: ExactSide, old: ExactSide | None) -> Iterator[str]:
    yield f"It was seen on {machine_class(line['machine'], line['device'])}."
    yield from dict.fromkeys((*new.notes, *(old.notes if old else ())))


def _without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    hidden = {key: HIDDEN if is_secret_name(key) else value for key, value in options.items()}
    found: dict[str, Any] = redact_all(hidden)
    return found


def _with_inputs(
    bundle: Bundle, case: Case, files: CaseFiles, found: FoundItem, making: Making
) -> Bundle:
    """Return a bundle with the inputs that matter, by the model's own names."""
    dataset = _dataset_of(case.loaded, files) if case.has_dataset else None
    with _opened(bundle, case, found, making) as predictor:
        own = predictor.own_outputs
        expected = _with_closeness(bundle.expected, case, found.line, own)
        chosen = _chosen(expected, case, dataset, found)
        if dataset is None:
            batch: Arrays = _random_inputs(predictor, case, found.line)
        elif chosen:
            chosen = _filled(chosen, _few(len(chosen), case))
            batch = dataset.batch(chosen)
        else:
            batch = first_batch(dataset, case.batch_size, case.loaded.manifest.evaluate.seed)
        reference = _reference(bundle, found, chosen, predictor, batch)
        inputs = _own(batch, predictor.own_inputs)
    return replace(bundle, inputs=inputs, reference=reference, expected=expected)


def _own(arrays: Arrays, names: Mapping[str, str]) -> dict[str, Array]:
    return {names.get(name, name): np.asarray(array) for name, array in arrays.items()}


def _few(count: int, case: Case) -> int:
    """Return the least batch size that holds a few of so many inputs, or else the largest."""
    sizes = sorted(case.loaded.manifest.evaluate.batch_sizes)
    for size in sizes:
        if size >= min(count, _FEW):
            return size
    return sizes[-1]


def _filled(chosen: Sequence[int], size: int) -> list[int]:
    """Return as many inputs as a batch takes: the last one again where there are fewer."""
    return [*chosen, *[chosen[-1]] * size][:size]


def _dataset_of(loaded: LoadedManifest, files: CaseFiles) -> Dataset | None:
    entry = loaded.manifest.dataset
    if entry is None or files.dataset is None:
        return None
    if loaded.origin is not None and loaded.origin.code:
        problem = f"{loaded.place()}: its inputs are made by Python that the manifest embeds"
        raise MlmsError(f"{problem}, which bundles don't run; import it with 'mlms import' first")
    dataset = open_dataset_of(loaded, files.dataset, files.steps)
    return without_corrupt(dataset, entry.skip_corrupt)


@contextlib.contextmanager
def _opened(bundle: Bundle, case: Case, found: FoundItem, making: Making) -> Iterator[Predictor]:
    """Load the model in the stack that works, else in the one that fails.

    The interpreter that was measured is used where it is there still, and the operator's own.
    Raises MlmsError for a model that generates.
    """
    if case.loaded.manifest.generate:
        problem = f"{case.loaded.place('generate')}: the model generates, which bundles don't yet"
        raise MlmsError(f"{problem}; send the manifest and the model with the run's folder instead")
    side = bundle.old or bundle.new
    recorded = recorded_launch(found.line, "launch_against" if bundle.old else "launch")
    program = making.trust.program(recorded, making.cache)
    if program is not None:
        stack = Stack(side.name, side.framework, interpreter=str(program), threads=bundle.threads)
        launch = prepare(stack, making.cache, threads=bundle.threads, show=making.show)
    else:
        stack = stack_of(bundle, side)
        launch = launch_of(bundle, side, making.cache, making.show)
    with temporary_log("mlms-repro-") as log:
        spec = PredictorSpec(
            case=replace(case, stack=stack),
            launch=launch,
            predictor=bundle.predictor,
            files=bundle.files,
            log=log,
            timeout=_TIMEOUT,
            allow_code=making.allow_code,
        )
        with open_predictor(spec) as opened:
            yield opened


def _chosen(
    expected: Expectation, case: Case, dataset: Dataset | None, found: FoundItem
) -> list[int]:
    """Return the inputs that the outputs differ most in; none where others don't matter more."""
    if dataset is None or expected.kind not in (OUTPUTS, ANSWERS):
        return []
    if case.kind == "agreement":
        return _most_different(expected, found)
    if case.kind == "accuracy":
        return _worst(found)
    return _worse(found.line, dataset)


def _recorded_outputs(found: FoundItem) -> dict[str, Array]:
    path = found.artifact("outputs.npz")
    if path is None:
        problem = f"{found.line['nodeid']} has no outputs.npz any more"
        raise MlmsError(f"{problem}, which has the reference's outputs; run it again")
    try:
        arrays = read_arrays(path)
    except (OSError, DamagedFile) as error:
        raise MlmsError(f"{path} can't be read: {error}; run the item again") from None
    missing = {_INDEX, *(name.removeprefix(_REFERENCE) for name in arrays)} - arrays.keys()
    if missing:
        raise MlmsError(f"{path} has no {', '.join(sorted(missing))}; run the item again")
    return arrays


def _most_different(expected: Expectation, found: FoundItem) -> list[int]:
    """Return the inputs of an agreement, the one with the largest difference first."""
    arrays = _recorded_outputs(found)
    rows = np.zeros(len(arrays[_INDEX]))
    tolerance = Tolerance(expected.rtol, expected.atol or 0.0)
    for name, reference in arrays.items():
        if name.startswith(_REFERENCE):
            ours = arrays[name.removeprefix(_REFERENCE)]
            share = differences(ours, reference, tolerance).deviation
            rows = np.maximum(rows, share.reshape(len(rows), -1).max(axis=1))
    order = np.argsort(-rows, kind="stable")
    return [int(arrays[_INDEX][index]) for index in order]


def _worst(found: FoundItem) -> list[int]:
    """Return the inputs that an accuracy item answered worst."""
    path = found.artifact("worst.json")
    if path is None:
        return []
    try:
        entries = parse_json(read_regular(path, _MOST_BYTES))["examples"]
        return [int(entry["input"]) for entry in entries]
    except (OSError, ValueError, LookupError, TypeError):
        raise MlmsError(f"{path} has no worst inputs; run the item again") from None


def _worse(line: Mapping[str, Any], dataset: Dataset) -> list[int]:
    """Return the inputs that an upgrade answers worse, which its line names by row or file."""
    numbers = {place_of(number, dataset): number for number in range(len(dataset))}
    names = [text.partition(": ")[0] for text in line.get("worse_inputs") or ()]
    return [numbers[name] for name in names if name in numbers]


def _check_versions(line: Mapping[str, Any], predictor: Predictor) -> None:
    """Raise MlmsError where the answers would be those of other software than was measured."""
    for name, version in (line.get("versions") or {}).items():
        now = predictor.versions.get(name)
        if now != version:
            problem = f"{line['nodeid']} was measured with {name} {version}, and {now} is there now"
            raise MlmsError(f"{problem}; run it again")


def _random_inputs(predictor: Predictor, case: Case, line: Mapping[str, Any]) -> Arrays:
    """Return the random batch that an upgrade names as its worst; the first one without such."""
    first = random_batch(predictor, case, (line.get("outputs") or {}).get("seed"))
    edges = dict(edge_batches(first, case.loaded.manifest.inputs, predictor.inputs))
    for text in line.get("worse_inputs") or ():
        name, _, _ = text.partition(": ")
        if name in edges:
            return edges[name]
        if named := _RANDOM_INPUT.fullmatch(name):
            number, seed = map(int, named.groups())
            return random_batch(predictor, case, seed + number // case.batch_size)
    return random_batch(predictor, case)


def _reference(
    bundle: Bundle,
    found: FoundItem,
    chosen: Sequence[int],
    predictor: Predictor,
    batch: Arrays,
) -> dict[str, Array]:
    """Return the outputs that one side is held against, by the model's own names."""
    if bundle.expected.kind == ANSWERS:
        _check_versions(found.line, predictor)
        return _own(predictor.predict(batch), predictor.own_outputs)
    if bundle.expected.kind != OUTPUTS or bundle.old is not None:
        return {}
    arrays = _recorded_outputs(found)
    places = {int(number): place for place, number in enumerate(arrays[_INDEX])}
    rows = [places[number] for number in (chosen or sorted(places))]
    outputs = {}
    for name, values in arrays.items():
        if name.startswith(_REFERENCE):
            outputs[name.removeprefix(_REFERENCE)] = values[rows]
    return _own(outputs, predictor.own_outputs)
