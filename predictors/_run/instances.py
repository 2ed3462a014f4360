"""Instances of a model that serve queries at the same time, each in a thread of its own.

Each is a copy of the model, as few frameworks promise that one can be called by two threads. It is
loaded, called and freed by its own thread, since frameworks keep state by thread. The first
instance is the model that was loaded already; it runs in the thread that loaded it, which is also
the one that calls ``Instances.run``.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Sequence, Set

from .device_memory import DeviceMemory, first_of
from .interface import Functions
from .process import rss
from .protocol import Load, Loaded

Library = List[Dict[str, Any]]
"""Arrays by input name of each sample that queries name by its place."""


class Instance:
    """One copy of the model, with calls that are bound to each sample."""

    def __init__(self, functions: Functions, loaded: Loaded):
        self.loaded = loaded
        self._functions = functions
        self._library: Library = []
        self._calls: List[Callable[[], Any]] = []
        self._met: Set[int] = set()

    def prepare(self, library: Library, sizes: Sequence[int]) -> None:
        """Bind a call to each sample, and make a call with each number of samples that is new.

        A framework may compile the model for each size that it meets. The first of them is called
        in any case: the first query should find the model in the caches.
        """
        if library is not self._library:
            self._library = library
            self._calls = [self._functions.bind(self.loaded, arrays) for arrays in library]
        for size in sizes:
            if size == sizes[0] or size not in self._met:
                self.serve([place % len(library) for place in range(size)])
                self._met.add(size)

    def serve(self, samples: Sequence[int]) -> Any:
        """Return the outputs for samples, which are joined on their first axis."""
        if len(samples) == 1:
            return self._calls[samples[0]]()
        return self._functions.predict(self.loaded, self._joined(samples))

    def close(self) -> None:
        """Free the model."""
        self._calls = []
        self._functions.close(self.loaded)

    def _joined(self, samples):
        import numpy

        joined = {}
        for name in self._library[samples[0]]:
            arrays = [self._library[sample][name] for sample in samples]
            joined[name] = numpy.concatenate(arrays)
        return joined


class Instances:
    """The instances of one model. The first one is ``loaded``, which this class does not free.

    ``bytes`` is the resident memory in bytes that each further copy took, and ``memory`` that of
    the device.
    """

    def __init__(
        self, functions: Functions, loaded: Loaded, request: Load, memory: DeviceMemory
    ) -> None:
        self.bytes: List[int] = []
        self.memory = memory
        self._on_device: List[int] = []
        self._functions = functions
        self._request = request
        self._first = Instance(functions, loaded)
        self._copies: List[Instance] = []
        self._threads: List[ThreadPoolExecutor] = []

    @property
    def device(self) -> str:
        """The device of the first instance."""
        return self._first.loaded.device

    @property
    def count(self) -> int:
        """The number of instances."""
        return 1 + len(self._copies)

    def load(self, count: int, available: int, first_bytes: int) -> None:
        """Load or free copies until there are ``count`` instances.

        ``available`` is the memory that is free, and ``first_bytes`` what the first instance took,
        both in bytes. Raises ValueError where the others would not fit, or can't be loaded.
        """
        while self.count > count:
            self._free_last()
        free = available
        while self.count < count:
            self._check(count, "memory", max(self.bytes or [first_bytes]), free)
            self._check_device(count)
            free -= self._add(count)

    def run(self, work: Callable[[Instance], Any]) -> None:
        """Call ``work`` with each instance, at the same time, each in its own thread.

        Raises the first error, once all have ended.
        """
        others = []
        for thread, instance in zip(self._threads, self._copies):
            others.append(thread.submit(work, instance))
        try:
            work(self._first)
        finally:
            errors = [other.exception() for other in others]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """Free the copies."""
        while self._copies:
            self._free_last()

    def _check(self, count, what, size, free):
        missing = count - self.count
        if size * missing > free:
            raise ValueError(_shortage(count, self.count, what, size, free))

    def _check_device(self, count):
        """Raise ValueError where the device has no room, as far as it tells.

        By the framework's counter the first instance has the size of its peak, calls included; by
        NVML the context is in it, so that the first copy tells the size.
        """
        if not self._on_device:
            self._on_device.append(first_of(self.memory.count(), 0))
        room = self.memory.room()
        if room is not None:
            self._check(count, self.device + "'s memory", max(self._on_device), room)

    def _add(self, count):
        """Load one more copy; return the bytes of the host that it took."""
        before = rss()
        on_device = self.memory.peak()
        thread = ThreadPoolExecutor(1, "mlms-instance")
        try:
            loaded = thread.submit(self._functions.load, self._request).result()
        except Exception as error:
            thread.shutdown()
            text = "instance %d of %d can't be loaded: %s: %s; ask for fewer instances"
            name = type(error).__name__
            raise ValueError(text % (self.count + 1, count, name, error)) from error
        self._threads.append(thread)
        self._copies.append(Instance(self._functions, loaded))
        taken = max(0, rss() - before)
        self.bytes.append(taken)
        self._on_device.append(self.memory.peak() - on_device)
        return taken

    def _free_last(self):
        thread = self._threads.pop()
        instance = self._copies.pop()
        self.bytes.pop()
        self._on_device.pop()
        thread.submit(instance.close).result()
        thread.shutdown()


def _shortage(count, there, what, size, free):
    text = (
        "%d instances don't fit: one takes %d MB of %s, and %d MB are free for %d more; "
        "ask for at most %d"
    )
    fitting = there + free // max(size, 1)
    return text % (count, size // 10**6, what, free // 10**6, count - there, fitting)
