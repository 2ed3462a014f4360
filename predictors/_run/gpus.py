"""How many GPUs the CUDA driver lists, without a framework."""

import ctypes


def count_gpus():
    """Return their number; 0 where there is no driver.

    A framework's GPU build installs without one too.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if found else 0
