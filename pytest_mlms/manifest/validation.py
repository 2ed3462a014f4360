"""Consistency checks between the sections of a manifest, which its schema can't express."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.manifest.thresholds import AgreementThreshold, Entry, agreement_limits
from pytest_mlms.manifest.yaml12 import Path
from pytest_mlms.quantities import QUANTITIES

__all__ = ["inconsistencies"]

Error = tuple[Path, str]

_MOST_CASES = 10_000
_SHOWN_VALUES = 20
_NO_ACCURACY = "add a dataset and an output of type classification"


def inconsistencies(manifest: Manifest) -> list[Error]:
    """Return what doesn't agree between the sections: the path of a key, and a text, for each."""
    errors = list(_too_many_cases(manifest))
    if errors:
        return errors
    for check in _CHECKS:
        errors += check(manifest)
    return errors


def _repeated_names(manifest: Manifest) -> Iterator[Error]:
    for section in ("models", "inputs", "outputs"):
        names: set[str] = set()
        for index, part in enumerate(getattr(manifest, section)):
            if part.name in names:
                text = f"{section} has {part.name!r} twice; keep one, or write a manifest for each"
                yield (section, index), text
            names.add(part.name)


def _too_many_cases(manifest: Manifest) -> Iterator[Error]:
    evaluate = manifest.evaluate
    points = len(evaluate.batch_sizes) * len(evaluate.scenarios)
    cases = len(manifest.models) * len(evaluate.devices) * points
    if cases > _MOST_CASES:
        advice = f"write fewer devices, batch_sizes or scenarios: at most {_MOST_CASES:,} cases"
        yield ("evaluate",), f"evaluate makes {cases:,} cases of performance; {advice}"


def _upgrade_without_accuracy(manifest: Manifest) -> Iterator[Error]:
    for name, tolerance in manifest.thresholds.upgrade.tolerances().items():
        if tolerance and _is_of_accuracy(name) and not manifest.has_accuracy:
            text = f"upgrade judges accuracy, and there is none; {_NO_ACCURACY}"
            yield ("thresholds", "upgrade"), text
            return


def _idle_limits(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for each limit that no case meets: such a gate would never close."""
    evaluated = _evaluated(manifest)
    for entry in manifest.thresholds.entries():
        path = ("thresholds", entry.key, entry.number)
        if _is_of_accuracy(entry.key) and not manifest.has_accuracy:
            yield path, f"{entry.key} judges nothing; {_NO_ACCURACY}"
        else:
            for text in _unknown_filters(evaluated, entry):
                yield path, text


def _is_of_accuracy(key: str) -> bool:
    return key in QUANTITIES and QUANTITIES[key].kind == "accuracy"


def _evaluated(manifest: Manifest) -> dict[str, dict[Any, None]]:
    """Return the values that cases have of each filter, in order."""
    evaluate = manifest.evaluate
    return {
        "batch_sizes": dict.fromkeys(evaluate.batch_sizes),
        "scenarios": dict.fromkeys(evaluate.scenarios),
        "devices": dict.fromkeys(evaluate.devices),
        "frameworks": dict.fromkeys(model.name for model in manifest.models),
    }


def _unknown_filters(evaluated: Mapping[str, Mapping[Any, None]], entry: Entry) -> Iterator[str]:
    for name, selected in entry.threshold.filters().items():
        values = evaluated[name]
        if any(value not in values for value in selected):
            known = ", ".join(map(str, itertools.islice(values, _SHOWN_VALUES)))
            found = f"{entry.key} names {name} that nothing is evaluated with"
            yield f"{found}; write some of {known}"


def _agreement_errors(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of agreements: a case has one at most, and its reference must exist."""
    judged: set[tuple[str, str]] = set()
    for index, agreement in enumerate(manifest.thresholds.agreement):
        path = ("thresholds", "agreement", index)
        for text in _agreement_texts(manifest, agreement, judged):
            yield path, text


def _agreement_texts(
    manifest: Manifest, agreement: AgreementThreshold, judged: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield errors of one agreement; ``judged`` are the models and devices of earlier ones.

    Adds its own to them.
    """
    models = [model.name for model in manifest.models]
    reference = agreement.reference
    if reference not in models:
        known = ", ".join(models)
        yield f"the reference {reference!r} has no model here; write one of {known}"
    limits = agreement_limits().keys() & agreement.model_fields_set
    if limits and manifest.classification is None:
        yield f"{min(limits)} judges nothing; add an output of type classification"
    pairs = set(_judged_pairs(manifest, agreement))
    for model, device in sorted(pairs & judged)[:1]:
        yield f"{model} on {device} has an agreement already; name other frameworks or devices"
    judged |= pairs


def _judged_pairs(manifest: Manifest, agreement: AgreementThreshold) -> Iterator[tuple[str, str]]:
    """Yield the models and the devices of the cases that an agreement judges."""
    for device in manifest.evaluate.devices:
        for model in manifest.models:
            if agreement.judges(device, model.name):
                yield model.name, device


_CHECKS = (
    _repeated_names,
    _upgrade_without_accuracy,
    _idle_limits,
    _agreement_errors,
)
