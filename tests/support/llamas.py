"""A Llama of two layers, drawn by a seed, as a GGUF file: its tokens are words, or single bytes.

In a process of its own it is the server of llama.cpp: ``python llamas.py PORT GGUF``.
"""

from __future__ import annotations

import signal
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HIDDEN, HEADS, LAYERS, CONTEXT = 64, 128, 4, 2, 512
WORDS = 200
_ALIGNED = 32  # bytes
_UNKNOWN, _CONTROL, _NORMAL, _BYTE = 2, 3, 1, 6
"""Types of tokens."""


def write_llama(path: Path, seed: int = 1) -> Path:
    """Write a model whose greedy answers are words, of which each has a blank before it."""
    random = np.random.default_rng(seed)
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f"\N{LOWER ONE EIGHTH BLOCK}w{number}" for number in range(WORDS)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *words]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_NORMAL] * WORDS]
    facts = {
        "general.architecture": "llama",
        "llama.context_length": CONTEXT,
        "llama.embedding_length": WIDTH,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // HEADS,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    head = random.standard_normal((len(tokens), WIDTH))
    head[: -len(words)] = 0  # bytes and marks are never the likeliest
    tensors = {"token_embd.weight": random.standard_normal((len(tokens), WIDTH))}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        tensors[block + "attn_norm.weight"] = tensors[block + "ffn_norm.weight"] = np.ones(WIDTH)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"{block}{part}.weight"] = random.standard_normal((WIDTH, WIDTH)) / 8
        tensors[block + "ffn_gate.weight"] = random.standard_normal((HIDDEN, WIDTH)) / 8
        tensors[block + "ffn_up.weight"] = random.standard_normal((HIDDEN, WIDTH)) / 8
        tensors[block + "ffn_down.weight"] = random.standard_normal((WIDTH, HIDDEN)) / 8
    tensors |= {"output_norm.weight": np.ones(WIDTH), "output.weight": head}
    path.write_bytes(_gguf(facts, tensors))
    return path


def _gguf(facts: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """Return a file of GGUF's version 3, little-endian, with tensors of float32."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(facts))]
    for name, value in facts.items():
        parts += [_text(name), _typed(value)]
    data = b""
    for name, array in tensors.items():
        shape = array.shape[::-1]
        parts += [_text(name), struct.pack(f"<I{len(shape)}Q", len(shape), *shape)]
        parts.append(struct.pack("<IQ", 0, len(data)))
        data += _padded(array.astype("<f4").tobytes())
    return _padded(b"".join(parts)) + data


def _typed(value: Any) -> bytes:
    """Return a value behind its type: a text, a number, a list of one of these."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_text(each) for each in value)
    kind, dtype = (6, "<f4") if isinstance(value[0], float) else (5, "<i4")
    return struct.pack("<IIQ", 9, kind, len(value)) + np.array(value, dtype).tobytes()


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNED)


def main() -> None:
    """Run the server of llama.cpp at a port."""
    import xllamacpp  # type: ignore[import-not-found]

    parameters = xllamacpp.CommonParams()
    parameters.port = int(sys.argv[1])
    parameters.model.path = sys.argv[2]
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    signal.pause()
    del server


if __name__ == "__main__":
    main()
