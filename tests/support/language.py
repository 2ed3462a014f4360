"""Small tokenizers and sounds for tests."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "where", "?", "mat", "on")


def write_tokenizer(path: Path, words: Sequence[str] = WORDS) -> str:
    """Write a tokenizer.json of whole words, as BERT joins them, and return its digest."""
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tokenizer.save(str(path))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tone(seconds: float = 0.5, rate: int = 16000, hertz: float = 440.0) -> Any:
    """Return the samples of a tone, float32."""
    times = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)


def encoded(samples: Any, rate: int = 16000, form: str = "WAV") -> bytes:
    """Return the content of a file of sound."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form)
    return file.getvalue()
