"""What must agree between the sections of a manifest, which its form can't say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.manifest.thresholds import Threshold, Thresholds

__all__ = ["disagreements"]


def disagreements(manifest: Manifest) -> list[tuple[tuple[Any, ...], str]]:
    """Return what doesn't agree between the sections, as (path, text) pairs."""
    found: list[tuple[tuple[Any, ...], str]] = []
    for section, key in (("models", "name"), ("inputs", "name"), ("outputs", "name")):
        names = [getattr(part, key) for part in getattr(manifest, section)]
        found += [
            (
                (section, index),
                f"{section} has {name!r} twice; keep one, or write a manifest for each",
            )
            for index, name in enumerate(names)
            if name in names[:index]
        ]
    if (
        manifest.thresholds.upgrade.top1 or manifest.thresholds.upgrade.top5
    ) and not manifest.has_accuracy:
        text = "upgrade judges accuracy, and there is none; add a dataset and an output of type classification"
        found.append((("thresholds", "upgrade"), text))
    for quantity in (name for name in Thresholds.model_fields if name != "upgrade"):
        for index, limit in enumerate(getattr(manifest.thresholds, quantity)):
            found += [
                (("thresholds", quantity, index), text) for text in _idle(manifest, quantity, limit)
            ]
    return found + [
        (("thresholds", "agreement", index), text) for index, text in _contradictions(manifest)
    ]


def _contradictions(manifest: Manifest) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the agreements, by their index.

    Each case has one, and something to be compared with.
    """
    entries, models = manifest.thresholds.agreement, [model.name for model in manifest.models]
    for index, entry in enumerate(entries):
        if entry.reference not in models:
            yield (
                index,
                f"the reference {entry.reference!r} has no model here; write one of {', '.join(models)}",
            )
        extra = {"top1", "kl", "js", "hellinger"} & entry.model_fields_set
        if extra and manifest.classification is None:
            yield index, f"{min(extra)} judges nothing; add an output of type classification"
        for device, model in itertools.product(manifest.evaluate.devices, models):
            if entry.judges(device, model) and any(
                before.judges(device, model) for before in entries[:index]
            ):
                yield (
                    index,
                    f"{model} on {device} has an agreement already; name other frameworks or devices",
                )
                break


def _idle(manifest: Manifest, quantity: str, limit: Threshold) -> list[str]:
    """Say why a limit would judge no case: nobody should believe in a gate that never closes."""
    if quantity in ("top1", "top5") and not manifest.has_accuracy:
        return [f"{quantity} judges nothing; add a dataset and an output of type classification"]
    offered: dict[str, list[Any]] = {
        "batch_sizes": manifest.evaluate.batch_sizes,
        "scenarios": manifest.evaluate.scenarios,
        "devices": manifest.evaluate.devices,
        "frameworks": [model.name for model in manifest.models],
    }
    return [
        f"{quantity} names {name} that nothing is evaluated with; write some of {', '.join(map(str, values))}"
        for name, values in offered.items()
        if set(getattr(limit, name, ())) - set(values)
    ]
