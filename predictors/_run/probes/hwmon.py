"""The probe ``hwmon``: power and temperature by the host's sensors; nothing is modelled.

A sensor is of a whole board, whoever uses it. The item holds its device alone, but other processes
may run.
"""

import glob
import os
from typing import List, NamedTuple

from ..probe import Probe, ProbeUnavailable
from ._files import read_text

HWMON = "/sys/class/hwmon"
_KINDS = (  # pattern of the file, unit, units in a step of the file's number
    ("power*_average", "W", 1e-6),
    ("power*_input", "W", 1e-6),
    ("temp*_input", "degC", 1e-3),
)


class _Sensor(NamedTuple):
    name: str
    path: str
    scale: float


class Hwmon(Probe):
    """Watts and degrees of every sensor, every 50 ms and between calls."""

    name = "hwmon"
    levels = ("hardware",)
    period = 0.05

    def start(self):
        """Find the sensors; raises ProbeUnavailable without any."""
        self._sensors: List[_Sensor] = []
        self.units = {}
        for pattern, unit, scale in _KINDS:
            for path in sorted(glob.glob(os.path.join(HWMON, "hwmon*", pattern))):
                self._add_sensor(path, unit, scale)
        if not self._sensors:
            raise ProbeUnavailable(
                "no sensors of power or temperature in %s, as on most virtual machines" % HWMON
            )

    def read(self):
        """Return the value of each sensor that can be read now."""
        values = {}
        for sensor in self._sensors:
            try:
                values[sensor.name] = int(read_text(sensor.path)) * sensor.scale
            except (OSError, ValueError) as error:
                self.missing[sensor.path] = str(error)
        return values

    def _add_sensor(self, path, unit, scale):
        folder, file = os.path.split(path)
        try:
            int(read_text(path))
            chip = read_text(os.path.join(folder, "name"))
        except (OSError, ValueError) as error:
            self.missing[path] = str(error)
            return
        name = "%s %s (%s)" % (chip, file, os.path.basename(folder))
        self._sensors.append(_Sensor(name, path, scale))
        self.units[name] = unit
