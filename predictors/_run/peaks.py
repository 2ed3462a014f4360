"""The device's best measured speeds: operations a second of a matrix product, bytes a second of a
sum of arrays.

They are the upper edges of a roofline. The sum is STREAM's Add (McCalpin 1995), a = b + c: it reads
two arrays and writes one, and as STREAM does, it counts these three only. Where the CPU reads a
line of memory before it writes it (write-allocate), that traffic comes on top and isn't counted, as
little as in the bytes of a layer.

On the CPU they are measured by numpy and its BLAS, with as many threads as the model has. On a GPU
they are measured by PyTorch where the stack has it.

OpenBLAS takes old kernels for a CPU that it does not know. So it is also asked for those of
AVX-512, in a process of its own: ``PYTHON peaks.py`` prints the speed of products alone.
"""

import functools
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

_SIDES = (384, 512, 1024)  # of the square matrices; the best size counts
_GPU_SIDE = 8192
# Elements of 4 bytes in each of the sum's arrays: 128 MiB. Caches that hold them show in the speed.
_ELEMENTS = 1 << 25
_GPU_ELEMENTS = 1 << 27
# Of each measurement, at least. The shortest time counts: other work only slows it down.
_SECONDS = 0.15
_REPEATS = 5


class Peaks(NamedTuple):
    """Operations a second, bytes a second, and a text on how they were measured."""

    flops: float
    bytes: float
    how: str


class _Product(NamedTuple):
    """Operations a second of matrix products, and the size of the matrices that is best."""

    flops: float
    side: int


def measure_peaks(device: str, threads: Optional[int], dtype: str = "float32") -> Peaks:
    """Measure the peaks of a device; ``threads`` None means all cores of the process.

    ``dtype`` is the type of a model's numbers, for products on a GPU. Raises RuntimeError for a GPU
    where the stack has no PyTorch.
    """
    if device == "cpu":
        return _measure_cpu(threads or _count_cores())
    return _measure_gpu(device, dtype)


def _count_cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _measure_cpu(threads):
    import numpy

    kernels = "its own"
    product = _measure_products()
    avx512 = _measure_products_with("SKYLAKEX") if _has_avx512() else None
    if avx512 is not None and avx512.flops > product.flops:
        kernels = "AVX-512"
        product = avx512
    how = "numpy %s, float32, %d x %d product by %s kernels, sum of 3 x %d MiB in %d threads" % (
        numpy.__version__,
        product.side,
        product.side,
        kernels,
        _ELEMENTS * 4 >> 20,
        threads,
    )
    return Peaks(product.flops, _traffic(_ELEMENTS) / _time_sum(threads), how)


def _measure_products():
    return max(_measure_product(side) for side in _SIDES)


def _measure_product(side):
    import numpy

    factor = numpy.ones((side, side), numpy.float32)
    out = numpy.empty_like(factor)
    seconds = _shortest(lambda: numpy.matmul(factor, factor, out=out))
    return _Product(2.0 * side**3 / seconds, side)


def _measure_products_with(kernels: str) -> Optional[_Product]:
    """Measure products in a process whose OpenBLAS has other kernels; None where that fails."""
    done = subprocess.run(
        [sys.executable, "-s", "-B", os.path.abspath(__file__)],
        check=False,
        env=dict(os.environ, OPENBLAS_CORETYPE=kernels),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    if done.returncode != 0:
        return None
    return _Product(*json.loads(done.stdout.decode()))


def _has_avx512():
    try:
        with open("/proc/cpuinfo") as file:
            return " avx512f " in file.read()
    except OSError:  # not Linux
        return False


def _traffic(elements):
    """Return the bytes that a sum of arrays with so many elements reads and writes."""
    return 3.0 * 4 * elements


def _time_sum(threads):
    """Return the seconds of a sum of arrays that are shared out among threads."""
    import numpy

    parts = []
    for _ in range(3):
        whole = numpy.ones(_ELEMENTS, numpy.float32)
        parts.append(numpy.array_split(whole, threads))
    works = [functools.partial(numpy.add, b, c, out=a) for a, b, c in zip(*parts)]
    return _shortest(lambda: _run_at_once(works))


def _run_at_once(works: Sequence[Callable[[], Any]]) -> None:
    """Run the functions at the same time, the first one in this thread."""
    threads = [threading.Thread(target=work) for work in works[1:]]
    for thread in threads:
        thread.start()
    works[0]()
    for thread in threads:
        thread.join()


def _measure_gpu(device, dtype):
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            "the peaks of a GPU are measured by PyTorch, which this stack doesn't have"
        ) from None
    return measure_by_pytorch(device, dtype, lambda: torch.cuda.synchronize(device))


def measure_by_pytorch(device: str, dtype: str, synchronize: Callable[[], Any]) -> Peaks:
    """Measure a device by PyTorch, with products of float16 or else float32.

    Values are random: with ones a GPU takes less power, so that its clock is one that no model
    has. Products may use TF32 where products or convolutions of the process may.
    """
    import torch

    def run_to_end(work):
        work()
        synchronize()

    products = torch.backends.cuda.matmul
    own = products.allow_tf32
    products.allow_tf32 = own or torch.backends.cudnn.allow_tf32
    kind = torch.float16 if dtype == "float16" else torch.float32
    try:
        factor = torch.randn(_GPU_SIDE, _GPU_SIDE, device=device, dtype=kind)
        product = _shortest(lambda: run_to_end(lambda: torch.mm(factor, factor)))
        a, b, c = (torch.randn(_GPU_ELEMENTS, device=device) for _ in range(3))
        seconds = _shortest(lambda: run_to_end(lambda: torch.add(b, c, out=a)))
        how = "torch %s, %s, %d x %d product of random values, sum of 3 x %d MiB" % (
            torch.__version__,
            "float16" if dtype == "float16" else "float32 (tf32 %s)" % products.allow_tf32,
            _GPU_SIDE,
            _GPU_SIDE,
            _GPU_ELEMENTS * 4 >> 20,
        )
    finally:
        products.allow_tf32 = own
    return Peaks(2.0 * _GPU_SIDE**3 / product, _traffic(_GPU_ELEMENTS) / seconds, how)


def _shortest(work):
    """Return the shortest of several times of a function, in seconds."""
    work()  # warm up
    durations: List[float] = []
    while len(durations) < _REPEATS or sum(durations) < _SECONDS:
        before = time.perf_counter()
        work()
        durations.append(time.perf_counter() - before)
    return min(durations)


if __name__ == "__main__":
    print(json.dumps(_measure_products()))
