"""Power and energy of the host where its sensors are shown: RAPL by powercap, and hwmon. Nothing is
ever modelled.

Both are the whole package's or board's, whoever uses it: the item holds its device alone, other
processes may run.
"""

import glob
import os

from . import Probe, ProbeUnavailable

POWERCAP = "/sys/class/powercap"
HWMON = "/sys/class/hwmon"


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
                self.missing[os.path.basename(folder)] = _denied(error)
        if not self._domains:
            reasons = sorted(set(self.missing.values()))
            raise ProbeUnavailable(
                "; ".join(reasons)
                or "no RAPL domains in %s, as on most virtual machines" % POWERCAP
            )
        self.units = {domain.name: "J" for domain in self._domains}
        self.rising = tuple(self.units)

    def read(self):
        """Return the joules of each domain."""
        return {domain.name: domain.joules() for domain in self._domains}


class _Domain:
    """One domain, whose counter of microjoules wraps at max_energy_range_uj."""

    def __init__(self, folder):
        self._path = os.path.join(folder, "energy_uj")
        self._range = int(_text(os.path.join(folder, "max_energy_range_uj")))
        self.name = "%s energy (%s)" % (
            _text(os.path.join(folder, "name")),
            os.path.basename(folder),
        )
        self._last, self._sum = int(_text(self._path)), 0

    def joules(self):
        now = int(_text(self._path))
        self._sum += now - self._last if now >= self._last else now - self._last + self._range
        self._last = now
        return self._sum * 1e-6


class Hwmon(Probe):
    """Watts and degrees of every sensor that hwmon shows, every 50 ms."""

    name = "hwmon"
    levels = ("hardware",)
    period = 0.05
    _FORMS = (
        ("power*_average", "W", 1e-6),
        ("power*_input", "W", 1e-6),
        ("temp*_input", "degC", 1e-3),
    )

    def start(self):
        """Find the sensors; raises ProbeUnavailable without any."""
        self._sensors, self.units = [], {}
        for pattern, unit, scale in self._FORMS:
            for path in sorted(glob.glob(os.path.join(HWMON, "hwmon*", pattern))):
                self._add(path, unit, scale)
        if not self._sensors:
            raise ProbeUnavailable(
                "no sensors of power or temperature in %s, as on most virtual machines" % HWMON
            )

    def read(self):
        """Return each sensor's value."""
        return {name: int(_text(path)) * scale for name, path, scale in self._sensors}

    def _add(self, path, unit, scale):
        folder, file = os.path.split(path)
        try:
            name = "%s %s (%s)" % (
                _text(os.path.join(folder, "name")),
                file,
                os.path.basename(folder),
            )
            int(_text(path))
        except (OSError, ValueError) as error:
            self.missing[path] = str(error)
            return
        self._sensors.append((name, path, scale))
        self.units[name] = unit


def _text(path):
    with open(path) as file:
        return file.read().strip()


def _denied(error):
    if isinstance(error, PermissionError):
        return (
            "not permitted: %s is readable by root only since CVE-2020-8694; let this user read it"
            % error.filename
        )
    return "%s: %s" % (error.filename, error.strerror)
