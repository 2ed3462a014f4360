"""What the device can do at best, measured: operations a second of a matrix product, bytes a second
of a triad.

The upper edges of a roofline. On the CPU by numpy (and its BLAS), with as many threads as the model
has; on a GPU by PyTorch where the stack has it, which has not yet been run. OpenBLAS takes old
kernels for a CPU that it doesn't know, so it is also asked for those of AVX-512, in a process of
its own: ``PYTHON peaks.py`` prints products alone.
"""

import json
import os
import subprocess
import sys
import threading
import time

_SIDES = (384, 512, 1024)  # of the square matrices: the best size counts
_GPU_SIDE = 8192
_ELEMENTS = 1 << 23  # of each of the triad's arrays of 4 bytes: 32 MiB, more than caches hold
_GPU_ELEMENTS = 1 << 27
_SECONDS, _REPEATS = 0.15, 5  # of each, at least; the best counts: what else runs only slows down


def peaks(device, threads):
    """Return ``flops``, ``bytes`` (both a second) and ``how``.

    Raises RuntimeError where nothing can measure.
    """
    if device == "cpu":
        return _on_cpu(threads or _cores())
    return _on_gpu(device)


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_cpu(threads):
    import numpy

    flops, side, kernels = max([_products() + ["its own"], _products_by("SKYLAKEX") + ["AVX-512"]])
    arrays = [numpy.ones(_ELEMENTS, numpy.float32) for _ in range(3)]
    parts = [numpy.array_split(array, threads) for array in arrays]
    triad = _best(lambda: _at_once([lambda p=part: _triad(*p) for part in zip(*parts)]))
    how = "numpy %s, float32, %d x %d product by %s kernels, triad of 3 x %d MiB in %d threads" % (
        numpy.__version__,
        side,
        side,
        kernels,
        _ELEMENTS * 4 >> 20,
        threads,
    )
    return {"flops": flops, "bytes": 5.0 * 4 * _ELEMENTS / triad, "how": how}


def _products():
    """Return operations a second of the size of matrices that is best, and that size."""
    return list(max((2.0 * side**3 / _best(_product(side)), side) for side in _SIDES))


def _products_by(kernels):
    """Return the same with other kernels of OpenBLAS.

    Nothing at all where this CPU or numpy doesn't have them.
    """
    if not _has_avx512():
        return [0.0, 0]
    environment = dict(os.environ, OPENBLAS_CORETYPE=kernels)
    command = [sys.executable, "-s", "-B", os.path.abspath(__file__)]
    done = subprocess.run(
        command, check=False, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.decode()) if done.returncode == 0 else [0.0, 0]


def _has_avx512():
    try:
        with open("/proc/cpuinfo") as file:
            return " avx512f " in file.read()
    except OSError:  # not Linux
        return False


def _product(side):
    import numpy

    one = numpy.ones((side, side), numpy.float32)
    out = numpy.empty_like(one)
    return lambda: numpy.matmul(one, one, out=out)


def _triad(a, b, c):
    """Do a = b + 3 c in two passes, which read and write five arrays together.

    Numpy has no single one.
    """
    import numpy

    numpy.multiply(c, numpy.float32(3), out=a)
    numpy.add(a, b, out=a)


def _at_once(works):
    started = [threading.Thread(target=work) for work in works[1:]]
    for thread in started:
        thread.start()
    works[0]()
    for thread in started:
        thread.join()


def _on_gpu(device):
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            "the peaks of a GPU are measured by PyTorch, which this stack doesn't have"
        ) from None
    one = torch.ones(_GPU_SIDE, _GPU_SIDE, device=device)
    a, b, c = (torch.ones(_GPU_ELEMENTS, device=device) for _ in range(3))

    def finished(work):
        def run():
            work()
            torch.cuda.synchronize(device)

        return run

    product = _best(finished(lambda: torch.mm(one, one)))
    triad = _best(finished(lambda: torch.add(b, c, alpha=3, out=a)))
    how = "torch %s, float32 (tf32 %s), %d x %d product, triad of 3 x %d MiB" % (
        torch.__version__,
        torch.backends.cuda.matmul.allow_tf32,
        _GPU_SIDE,
        _GPU_SIDE,
        _GPU_ELEMENTS * 4 >> 20,
    )
    return {
        "flops": 2.0 * _GPU_SIDE**3 / product,
        "bytes": 3.0 * 4 * _GPU_ELEMENTS / triad,
        "how": how,
    }


def _best(work):
    work()
    taken = []
    while len(taken) < _REPEATS or sum(taken) < _SECONDS:
        before = time.perf_counter()
        work()
        taken.append(time.perf_counter() - before)
    return min(taken)


if __name__ == "__main__":
    print(json.dumps(_products()))
