"""The sections of a manifest that have the answer's settings, and judge what was promised."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit
from pytest_mlms.core.units import UNITS, format_quantity, parse_quantity
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.decide.advice.measuring import is_timed
from pytest_mlms.manifest.load import load_document
from pytest_mlms.manifest.reading import read
from pytest_mlms.provide.cases import HERE_NAME, Case


class _Dumper(yaml.SafeDumper):
    """A writer of YAML 1.2 without aliases, as sections are pasted one by one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(  # numbers of 1.2 that are texts in 1.1
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+|0o[0-7]+"),
    [*"-+.0123456789"],
)


@dataclass(frozen=True)
class Fragment:
    """The sections to paste, the keys that they replace, and what was left out of them."""

    sections: dict[str, Any]
    idle: Sequence[str]

    def check(self, case: Case, predictors: Mapping[str, Path]) -> None:
        """Raise ManifestError where a manifest with these sections has errors."""
        document = read(case.loaded.path)
        document.value = {**document.value, **self.sections}
        load_document(case.loaded.path, document, predictors)

    def text(self, case: Case) -> str:
        """Return it as YAML, below a comment that says where to paste it."""
        dumped = yaml.dump(
            self.sections,
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,
            width=100,
        ).rstrip()
        lines = [where_to_paste(case, [*self.sections]), dumped]
        lines += [f"# left out, as it judges another batch size: {each}" for each in self.idle]
        return "\n".join(lines)


def where_to_paste(case: Case, keys: Sequence[str]) -> str:
    """Return the comment above sections: their manifest, and what runs the case."""
    stack = case.stack
    name = stack.framework if stack.name == HERE_NAME else f"--mlms-stack {stack.name}"
    replaced = " and ".join(keys)
    return f"# in {case.loaded.place().path}, run with {name}, in place of {replaced}:"


def fragment_of(chosen: Candidate, limits: Sequence[Limit]) -> Fragment:
    """Return the sections for a candidate, in which the command's limits judge it, too.

    Limits of the manifest on other batch sizes are left out: they would judge nothing.
    """
    case = chosen.case
    content = copy.deepcopy(read(case.loaded.path).value)
    evaluate = {**content.get("evaluate", {}), "batch_sizes": [case.batch_size]}
    if len(case.loaded.manifest.evaluate.devices) > 1:
        evaluate["devices"] = [case.device]
    if case.threads:
        evaluate["threads"] = case.threads
    sections = {"evaluate": evaluate}
    if chosen.options:
        model = content["models"][case.loaded.manifest.models.index(case.model)]
        model["options"] = {**model.get("options", {}), **chosen.options}
        sections = {"models": content["models"], **sections}
    thresholds, idle = _without_idle(content.get("thresholds", {}), case.batch_size)
    for limit in limits:
        thresholds[_key(limit)] = [*_listed(thresholds.get(_key(limit), [])), _entry(limit, case)]
    if thresholds != content.get("thresholds", {}):
        sections["thresholds"] = thresholds
    return Fragment(sections, idle)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _without_idle(thresholds: dict[str, Any], size: int) -> tuple[dict[str, Any], list[str]]:
    """Return thresholds with those entries that judge a batch size, and the keys of the others."""
    kept: dict[str, Any] = {}
    idle = []
    for key, value in thresholds.items():
        entries = []
        for entry in _listed(value):
            sizes = entry.get("batch_sizes") if isinstance(entry, dict) else None
            if sizes and size not in sizes:
                idle.append(f"{key}: {entry}")
            else:
                entries.append({**entry, "batch_sizes": [size]} if sizes else entry)
        if entries:
            kept[key] = entries if isinstance(value, list) else entries[0]
    return kept, idle


def _key(limit: Limit) -> str:
    return QUANTITIES[limit.quantity].limit_key


def _entry(limit: Limit, case: Case) -> dict[str, Any]:
    """Return a limit of the command as a manifest writes it, for what was measured."""
    quantity = QUANTITIES[limit.quantity]
    names = [case.model.label] if len(case.loaded.manifest.models) > 1 else []
    entry: dict[str, Any] = {quantity.bound: _written(limit.value, quantity.unit)}
    if names:
        entry["frameworks"] = names
    if is_timed(limit):
        entry["scenarios"] = [case.scenario]
    return entry


def _written(value: float, unit: str) -> str | float:
    """Return a value as a manifest writes it, without any rounding."""
    if unit not in UNITS:
        return value
    for text in (format_quantity(value, unit), f"{value!r} {unit}"):
        try:
            if parse_quantity(text, unit) == value:
                return text
        except ValueError:
            continue
    return value
