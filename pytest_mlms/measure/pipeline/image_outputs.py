"""The output step that makes a picture out of a model's values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.mask_steps import Image

Array = NDArray[Any]


def to_images(values: Array, parameters: Image) -> Array:
    """Return pictures with the channels last (inputs x height x width x channels), float64.

    Raises ValueError for values of another shape, or of another number of channels.
    """
    if values.ndim != 4:
        found = f"the output is {values.shape}"
        raise ValueError(f"{found}; name one of inputs, channels, height and width")
    pictures = np.moveaxis(values, 1, -1) if parameters.layout == "NCHW" else values
    channels = pictures.shape[-1]
    for name in ("mean", "scale"):
        count = len(getattr(parameters, name))
        if count not in (1, channels):
            found = f"{name} has {count} values for {channels} channels"
            raise ValueError(f"{found}; write one for all, or one for each")
    scale = np.asarray(parameters.scale)
    return np.asarray(pictures.astype(np.float64) * scale + np.asarray(parameters.mean))
