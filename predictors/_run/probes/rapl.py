"""The probe ``rapl``: energy of the host by RAPL, as powercap shows it; nothing is modelled.

A domain is a whole package or memory controller, whoever uses it. The item holds its device alone,
but other processes may run.
"""

import glob
import os

from ..probe import Probe, ProbeUnavailable
from ._files import read_text

POWERCAP = "/sys/class/powercap"


class Rapl(Probe):
    """Joules of each RAPL domain since the start, every 20 ms and between calls."""

    name = "rapl"
    levels = ("hardware",)
    period = 0.02

    def start(self):
        """Find the domains; raises ProbeUnavailable without any, or without permission."""
        self._domains = []
        for folder in sorted(glob.glob(os.path.join(POWERCAP, "intel-rapl:*"))):
            try:
                self._domains.append(_Domain(folder))
            except OSError as error:
                self.missing[os.path.basename(folder)] = _reason(error)
        if not self._domains:
            reasons = sorted(set(self.missing.values()))
            absent = "no RAPL domains in %s, as on most virtual machines" % POWERCAP
            raise ProbeUnavailable("; ".join(reasons) or absent)
        self.units = {domain.name: "J" for domain in self._domains}
        self.rising = tuple(self.units)

    def read(self):
        """Return the joules of each domain that can be read now."""
        values = {}
        for domain in self._domains:
            try:
                values[domain.name] = domain.read_joules()
            except (OSError, ValueError) as error:
                self.missing[domain.name] = str(error)
        return values


class _Domain:
    """One domain: its counter of microjoules wraps at max_energy_range_uj.

    It wraps from the upper half of its range to the lower one, as it is read often enough. Any
    other step back is one of the counter itself, as after a suspension, and stays one.
    """

    def __init__(self, folder):
        self._path = os.path.join(folder, "energy_uj")
        self._range = int(read_text(os.path.join(folder, "max_energy_range_uj")))
        label = read_text(os.path.join(folder, "name"))
        self.name = "%s energy (%s)" % (label, os.path.basename(folder))
        self._last = int(read_text(self._path))
        self._sum = 0

    def read_joules(self):
        now = int(read_text(self._path))
        step = now - self._last
        if now < self._range / 2 < self._last:
            step += self._range
        self._sum += step
        self._last = now
        return self._sum * 1e-6


def _reason(error):
    if isinstance(error, PermissionError):
        return (
            "not permitted: %s is readable by root only since CVE-2020-8694; let this user read it"
            % error.filename
        )
    return "%s: %s" % (error.filename, error.strerror)
