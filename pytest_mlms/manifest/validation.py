"""Consistency checks between the sections of a manifest, which its schema can't express."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.manifest.thresholds import AgreementThreshold, Entry, agreement_limits
from pytest_mlms.manifest.yaml12 import Path
from pytest_mlms.quantities import QUANTITIES

__all__ = ["inconsistencies"]

Error = tuple[Path, str]

_NO_ACCURACY = "add a dataset and an output of type classification"


def inconsistencies(manifest: Manifest) -> list[Error]:
    """Return what doesn't agree between the sections: the path of a key, and a text, for each."""
    errors: list[Error] = []
    for check in (_repeated_names, _upgrade_without_accuracy, _idle_limits, _agreement_errors):
        errors += check(manifest)
    return errors


def _repeated_names(manifest: Manifest) -> Iterator[Error]:
    for section in ("models", "inputs", "outputs"):
        names = [part.name for part in getattr(manifest, section)]
        for index, name in enumerate(names):
            if name in names[:index]:
                text = f"{section} has {name!r} twice; keep one, or write a manifest for each"
                yield (section, index), text


def _upgrade_without_accuracy(manifest: Manifest) -> Iterator[Error]:
    for name, tolerance in manifest.thresholds.upgrade.tolerances().items():
        if tolerance and _is_of_accuracy(name) and not manifest.has_accuracy:
            text = f"upgrade judges accuracy, and there is none; {_NO_ACCURACY}"
            yield ("thresholds", "upgrade"), text
            return


def _idle_limits(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for each limit that no case meets: such a gate would never close."""
    for entry in manifest.thresholds.entries():
        path = ("thresholds", entry.key, entry.number)
        if _is_of_accuracy(entry.key) and not manifest.has_accuracy:
            yield path, f"{entry.key} judges nothing; {_NO_ACCURACY}"
        else:
            for text in _unknown_filters(manifest, entry):
                yield path, text


def _is_of_accuracy(key: str) -> bool:
    return key in QUANTITIES and QUANTITIES[key].kind == "accuracy"


def _unknown_filters(manifest: Manifest, entry: Entry) -> Iterator[str]:
    evaluate = manifest.evaluate
    evaluated: dict[str, Collection[Any]] = {
        "batch_sizes": evaluate.batch_sizes,
        "scenarios": evaluate.scenarios,
        "devices": evaluate.devices,
        "frameworks": [model.name for model in manifest.models],
    }
    for name, selected in entry.threshold.filters().items():
        values = evaluated[name]
        if set(selected) - set(values):
            known = ", ".join(map(str, values))
            found = f"{entry.key} names {name} that nothing is evaluated with"
            yield f"{found}; write some of {known}"


def _agreement_errors(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of agreements: a case has one at most, and its reference must exist."""
    agreements = manifest.thresholds.agreement
    for index, agreement in enumerate(agreements):
        path = ("thresholds", "agreement", index)
        for text in _agreement_texts(manifest, agreement, agreements[:index]):
            yield path, text


def _agreement_texts(
    manifest: Manifest, agreement: AgreementThreshold, earlier: list[AgreementThreshold]
) -> Iterator[str]:
    models = [model.name for model in manifest.models]
    reference = agreement.reference
    if reference not in models:
        known = ", ".join(models)
        yield f"the reference {reference!r} has no model here; write one of {known}"
    limits = agreement_limits().keys() & agreement.model_fields_set
    if limits and manifest.classification is None:
        yield f"{min(limits)} judges nothing; add an output of type classification"
    twice = _judged_twice(manifest, agreement, earlier)
    if twice:
        yield f"{twice} has an agreement already; name other frameworks or devices"


def _judged_twice(
    manifest: Manifest, agreement: AgreementThreshold, earlier: list[AgreementThreshold]
) -> str:
    """Return the first model and device that an earlier agreement judges too; "" for none."""
    for device in manifest.evaluate.devices:
        for model in manifest.models:
            judging = [each for each in earlier if each.judges(device, model.name)]
            if judging and agreement.judges(device, model.name):
                return f"{model.name} on {device}"
    return ""
