"""Layers of a call whose framework tells how long each took and not when it began."""

from .protocol import Layer, Profile


def in_turn(start, end, layers):
    """Return the Profile of ``layers``, (name, type, seconds, bytes, shape) in the order they ran, one after another.

    The first begins with the call; what the framework does between layers is the rest at its end.
    """
    placed, now = [], start
    for name, kind, seconds, size, shape in layers:
        placed.append(Layer(name, kind, now, now + seconds, size, shape))
        now += seconds
    return Profile(start, max(end, now), placed)
