"""Pictures of sounds: the waveform, with its length and how loud it is."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pytest_mlms.core.units import format_quantity
from pytest_mlms.show.pages.examples import Waveform
from pytest_mlms.show.pages.svg import element, filled, number, path_of, picture, stroked, words

_WIDTH = 180.0
_MIDDLE = 30.0  # the place of silence
_HALF = 28.0  # the height of the loudest sample
_THINNEST = 0.4  # half of the height that silence has
_HEIGHT = 76.0


def waveform_chart(waveform: Waveform, label: str) -> Markup | None:
    """Return a sound over its time, scaled to its loudest sample; None without any sample.

    ``label`` says of which input it is.
    """
    if not waveform.lows or len(waveform.lows) != len(waveform.highs):
        return None
    loudest = max(*waveform.highs, -min(waveform.lows))
    outline = _outline(waveform, _HALF / (loudest or 1.0))
    silence = f"M0 {number(_MIDDLE)}H{number(_WIDTH)}"
    length = format_quantity(waveform.seconds, "s")
    caption = f"{length}, loudest {loudest:.3g}"
    line = element("path", d=silence, **stroked("grid", 1))
    sound = element("path", d=outline, title=label, **filled("b"))
    text = words(0, _HEIGHT - 4, caption, "start", "muted")
    return picture(f"sound of {label}", _HEIGHT, [line, sound, text], width=_WIDTH)


def _outline(waveform: Waveform, scale: float) -> str:
    """Return the path around a sound; silence has a thin line."""
    upper = [max(high * scale, _THINNEST) for high in waveform.highs]
    lower = [min(low * scale, -_THINNEST) for low in waveform.lows]
    points = _places(upper)
    points += reversed(_places(lower))
    return f"{path_of(points)}z"


def _places(heights: Sequence[float]) -> list[tuple[float, float]]:
    """Return points from left to right at heights over the middle."""
    step = _WIDTH / len(heights)
    places = []
    left = step / 2
    for height in heights:
        places.append((left, _MIDDLE - height))
        left += step
    return places
