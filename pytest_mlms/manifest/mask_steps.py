"""Parameters of the output steps of masks and images."""

from __future__ import annotations

from typing import Literal

from pytest_mlms.manifest.types import Closed, Layout, PerChannel


class Mask(Closed):
    """Say how the classes of labels are numbered, and how a mask gets the size of its label.

    ``ignore`` is the number of the pixels of labels that aren't judged, and ``offset`` is how much
    the labels' numbers are above the model's. ``resize`` takes the nearest pixel, as OpenCV does.
    """

    ignore: int | None = None
    offset: int = 0
    resize: Literal["nearest"] | None = None


class Image(Closed):
    """Compute values x scale + mean, the reverse of the input step normalize, channels last.

    ``layout`` is that of the output, with one number for all channels or one for each.
    """

    layout: Layout = "NCHW"
    mean: PerChannel = (0.0,)
    scale: PerChannel = (1.0,)
