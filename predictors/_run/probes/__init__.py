"""The registry of probes: the file NAME.py of this folder has the probe NAME.

Its class is called like the file, with a capital letter: ``perf.py`` has ``Perf``. Nothing else
lists the probes, so a new file is a new probe; names with a leading underscore are helpers. A file
is imported when its probe is used.
"""

import contextlib
import importlib
import pkgutil
from typing import Any, Dict, Iterable, List, Optional

from ..probe import CounterReadings, Probe, ProbeStatus, ProbeUnavailable

_INNERMOST = "io"  # counts the system calls by which the others read


def probe_names() -> List[str]:
    """Return the names of all probes, sorted."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name for name in names if not name.startswith("_"))


def probes_at(level: str) -> List[str]:
    """Return the names of the probes that serve a level, sorted."""
    return [name for name in probe_names() if level in _probe_class(name).levels]


def _probe_class(name):
    module = importlib.import_module(__name__ + "." + name)
    return getattr(module, name.capitalize())


def open_probe(
    name: str, device: str, level: str, options: Optional[Dict[str, Any]] = None
) -> Probe:
    """Return a probe that is not yet entered; raises ProbeUnavailable for an unknown name."""
    known = probe_names()
    if name not in known:
        raise ProbeUnavailable("there is no probe %r; there are %s" % (name, ", ".join(known)))
    probe_class = _probe_class(name)
    return probe_class(device, level, options)


class ProbeSet:
    """The probes of these names that can observe here, as one context manager.

    ``options`` are those of each probe by its name. ``entered`` has the probes that observe, and
    ``refused`` the status of each that cannot.
    """

    def __init__(
        self,
        names: Iterable[str],
        device: str,
        level: str,
        options: Optional[Dict[str, Dict[str, Any]]] = None,
    ):
        self.entered: List[Probe] = []
        self.refused: List[ProbeStatus] = []
        self._names = list(names)
        self._device = device
        self._level = level
        self._options = options or {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "ProbeSet":
        with contextlib.ExitStack() as stack:
            for name in sorted(self._names, key=_INNERMOST.__eq__):
                self._enter(stack, name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def between(self) -> None:
        """Have every probe take a reading, and those whose counters rise a second one.

        So what a probe reads before a call is read last of those probes, and first after it: the
        innermost one counts nothing that the others do.
        """
        for probe in reversed(self.entered):
            probe.between()
        for probe in self.entered:
            if probe.rising and len(self.entered) > 1:
                probe.between()

    def statuses(self) -> List[ProbeStatus]:
        """Return the status of each probe that was entered; complete once the context has ended."""
        return [
            ProbeStatus(probe.name, True, missing=probe.missing, fault=probe.fault)
            for probe in self.entered
        ]

    def series(self) -> List[CounterReadings]:
        """Return the readings of all counters of all probes."""
        found: List[CounterReadings] = []
        for probe in self.entered:
            found += probe.series
        return found

    def _enter(self, stack, name):
        try:
            probe = open_probe(name, self._device, self._level, self._options.get(name))
            self.entered.append(stack.enter_context(probe))
        except ProbeUnavailable as reason:
            self.refused.append(ProbeStatus(name, False, str(reason)))
        except Exception as error:  # a fault of a probe must not cost the calls
            message = "%s: %s" % (type(error).__name__, error)
            self.refused.append(ProbeStatus(name, False, message))
