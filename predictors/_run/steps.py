"""The moments between layers, for frameworks whose layers a predictor runs one by one.

A predictor calls ``between`` before the first layer and after each, outside of the times that it
reports. Without an observer that costs nothing. Where layers run in one call of the framework
there are no such moments.
"""

import contextlib
from typing import Callable, List

_OBSERVERS: List[Callable[[], object]] = []


def between():
    """Tell every observer that no layer runs now."""
    for observer in _OBSERVERS:
        observer()


@contextlib.contextmanager
def observed_by(observer):
    """Have ``observer``, a function without arguments, called between layers for a while."""
    _OBSERVERS.append(observer)
    try:
        yield
    finally:
        _OBSERVERS.remove(observer)
