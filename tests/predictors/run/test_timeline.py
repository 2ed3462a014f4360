"""Layers that come with durations alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.timeline import in_turn

SECONDS = st.floats(0, 10)


@given(SECONDS, SECONDS, st.lists(SECONDS))
def test_layers_follow_each_other_inside_their_call(
    start: float, length: float, durations: list[float]
) -> None:
    profile = in_turn(
        start,
        start + length,
        [(str(n), "any", took, None, None) for n, took in enumerate(durations)],
    )
    now = profile.start
    for layer, took in zip(profile.layers, durations, strict=True):
        assert layer.start == now
        assert abs(layer.end - layer.start - took) < 1e-9
        now = layer.end
    assert profile.start == start
    assert profile.end == max(start + length, now)
