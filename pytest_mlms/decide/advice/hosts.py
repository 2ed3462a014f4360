"""Hosts that a fleet has, and what an hour of them costs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.reading import read, shown

LAST_RUNS = 10
"""Runs that are looked at: older ones say little of today's software."""
ALL_RUNS = (LAST_RUNS + 1,)
"""A single look, at the end: runs that are known take no time."""

_PRICE = re.compile(r"(\d+(?:\.\d+)?)\s*([^\s\d/]+)\s*/\s*h")
_FORM = "write it as in 'hosts: {gpu1: {price: 2.1 USD/h}}'"
_INPUTS_OF_PRICE = 1e6
_SECONDS_OF_HOUR = 3600
_BEFORE = 3  # runs that show a level
_APART = math.log(1.05)
_LEAST = 1e-12  # in place of a value that has no logarithm


class Host(NamedTuple):
    """A host by its name in the history; its price of an hour, None where it isn't told."""

    name: str
    price: float | None
    currency: str

    def price_at(self, throughput: float) -> float:
        """Return the price of a million inputs, of which so many are done in a second."""
        assert self.price is not None, "hosts without a price aren't compared by it"
        return self.price / _SECONDS_OF_HOUR * _INPUTS_OF_PRICE / throughput


def runs_since_change(values: Sequence[float]) -> int:
    """Return how many of the last runs, the newest last, are of one level: all, but for a change.

    At a change the runs since and those before are further apart than each of both scatter, and
    than a twentieth. Runs before it are of other software, or of another state of the machine.
    """
    logs = [math.log(max(value, _LEAST)) for value in values]
    for count in range(1, len(logs) - _BEFORE + 1):
        before, since = sorted(logs[:-count]), sorted(logs[-count:])
        gap = max(since[0] - before[-1], before[0] - since[-1])
        if gap > max(before[-1] - before[0], since[-1] - since[0], _APART):
            return count
    return len(logs)


def read_hosts(path: Path) -> list[Host]:
    """Return the hosts of a file; raises MlmsError, which names the line of what is wrong."""
    document = read(path, _FORM)
    for line, text in document.errors:
        raise MlmsError(f"{shown(path)}:{line}: {text}")
    hosts = document.value.get("hosts")
    others = [key for key in document.value if key != "hosts"]
    if others or not isinstance(hosts, dict) or not hosts:
        problem = f"there is a key {others[0]}" if others else "it has no hosts"
        raise MlmsError(f"{shown(path)}:{document.line((*others[:1],))}: {problem}; {_FORM}")
    found = []
    for name, keys in hosts.items():
        place = Place(shown(path), document.line(("hosts", name)))
        found.append(_host(str(name), {} if keys is None else keys, place))
    currencies = sorted({host.currency for host in found if host.currency})
    if len(currencies) > 1:
        place = Place(shown(path), document.line(("hosts",)))
        problem = f"prices in {' and '.join(currencies)} aren't compared"
        raise MlmsError(f"{place}: {problem}; write one currency")
    return found


def _host(name: str, keys: object, place: Place) -> Host:
    if not isinstance(keys, dict) or not {*keys} <= {"price"}:
        raise MlmsError(f"{place}: {name} has something else than a price; {_FORM}")
    if not keys:
        return Host(name, None, "")
    found = _PRICE.fullmatch(str(keys["price"]).strip())
    price = float(found[1]) if found else 0.0
    if found is None or not 0 < price < math.inf:
        raise MlmsError(f"{place}: {keys['price']!r} is no price of an hour above 0; {_FORM}")
    return Host(name, price, found[2])
