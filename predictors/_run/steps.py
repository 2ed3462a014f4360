"""The moments between layers, of frameworks whose layers a predictor runs one by one: who counts is
called there.

A predictor calls ``between`` before the first layer and after each, outside of the times that it
tells. Where nobody counts that costs nothing; where layers run in one call of the framework's there
are no such moments.
"""

import contextlib

_WATCHERS = []


def between():
    """Tell whoever watches that no layer runs now."""
    for watcher in _WATCHERS:
        watcher()


@contextlib.contextmanager
def watched_by(watcher):
    """Have ``watcher`` called between layers for a while."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)
