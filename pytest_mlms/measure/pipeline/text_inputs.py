"""Texts of a dataset as the numbers of their tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.text_steps import Tokenize
from pytest_mlms.measure.pipeline.tokenizer_files import encode

Array = NDArray[Any]


def tokenize(text: Any, parameters: Tokenize) -> Array:
    """Return the ids, the mask or the types of a text's tokens, or of those of a pair (int64)."""
    if not isinstance(text, (str, tuple)):
        raise TypeError("the dataset has no text; write one in each row of the input's column")
    encoding = encode(text, parameters)
    numbers = {
        "ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "type_ids": encoding.type_ids,
    }
    return np.array(numbers[parameters.give], dtype=np.int64)


def check_ids(ids: Array, allowed: tuple[float, float]) -> None:
    """Raise ValueError for ids outside of the range that the manifest gives the input."""
    low, high = allowed
    for wrong in (ids.min(), ids.max()):
        if not low <= wrong <= high:
            found = f"token {wrong:,} is outside of the input's range, {low:g} to {high:g}"
            raise ValueError(f"{found}; name the tokenizer of this model, or correct the range")
