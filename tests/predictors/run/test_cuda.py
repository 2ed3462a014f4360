"""Memory of a GPU by calls of the driver, above a stub of it whose memory is the host's."""

from __future__ import annotations

import subprocess
import sys

from tests.support.driver import H200, Driver

REUSE = """
import ctypes
import numpy
from mlms_predictors._run.cuda import Buffers, Device

device = Device(0)
buffers = Buffers(device)
count = ctypes.CDLL("libcuda.so.1").stub_allocations
places = []
for size in (8, 8, 4, 16, 16):
    given = numpy.arange(size, dtype=numpy.float32)
    places.append(buffers.place("image", given.nbytes))
    device.upload(places[-1], given)
    found = numpy.zeros_like(given)
    device.download(found, places[-1])
    device.synchronize()
    assert (found == given).all()
print(count(), len(set(places[:3])), len(set(places[3:])))
buffers.close()
buffers.place("image", 4)
print(count())
device.close()
"""


def test_a_call_allocates_only_where_it_needs_more_than_the_one_before(driver: Driver) -> None:
    driver.says(H200)
    done = subprocess.run([sys.executable, "-c", REUSE], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "1", "1", "3"], done.stderr


def test_a_gpu_that_the_driver_lacks_is_refused_in_its_words(driver: Driver) -> None:
    driver.says(H200)
    code = "from mlms_predictors._run.cuda import Device; Device(1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "RuntimeError: cuDeviceGet: invalid" in done.stderr
