"""Pictures of sounds: the waveform, with its length and how loud it is."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pytest_mlms.charts.paints import filled, stroked
from pytest_mlms.charts.picture import picture
from pytest_mlms.charts.svg import element, number, path_of, words
from pytest_mlms.units import format_quantity
from pytest_mlms.views.examples import Waveform

__all__ = ["waveform_chart"]

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
    loudest = max(map(abs, (*waveform.lows, *waveform.highs)))
    scale = _HALF / (loudest or 1.0)
    upper = _places([max(high * scale, _THINNEST) for high in waveform.highs])
    lower = _places([min(low * scale, -_THINNEST) for low in waveform.lows])
    outline = path_of([*upper, *reversed(lower)])
    length = format_quantity(waveform.seconds, "s")
    parts = [
        element("path", d=f"M0 {number(_MIDDLE)}H{number(_WIDTH)}", **stroked("grid", 1)),
        element("path", d=f"{outline}z", title=label, **filled("b")),
        words(0, _HEIGHT - 4, f"{length}, loudest {loudest:.3g}", "start", "muted"),
    ]
    return picture(f"sound of {label}", _HEIGHT, parts, width=_WIDTH)


def _places(heights: Sequence[float]) -> list[tuple[float, float]]:
    """Return points from left to right at heights over the middle."""
    step = _WIDTH / len(heights)
    return [((column + 0.5) * step, _MIDDLE - height) for column, height in enumerate(heights)]
