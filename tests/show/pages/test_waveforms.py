"""Pictures of sounds."""

from __future__ import annotations

from pytest_mlms.show.pages.examples import Waveform
from pytest_mlms.show.pages.worst_inputs import waveform_chart
from tests.support.svg import marks, texts, titles


def test_a_sound_is_an_outline_with_its_length_and_loudness() -> None:
    svg = waveform_chart(Waveform(1.5, (-0.1, -0.25), (0.2, 0.5)), "a.wav")
    assert svg is not None
    assert titles(svg) == {"a.wav"}
    assert texts(svg) == {"1.50 s, loudest 0.5"}
    assert len(marks(svg, "path")) == 2


def test_silence_is_a_thin_line_and_no_sound_is_nothing() -> None:
    svg = waveform_chart(Waveform(1.0, (0.0,), (0.0,)), "a.wav")
    assert svg is not None
    assert "loudest 0" in svg
    assert waveform_chart(Waveform(0.0, (), ()), "a.wav") is None
    assert waveform_chart(Waveform(1.0, (0.0,), ()), "a.wav") is None
