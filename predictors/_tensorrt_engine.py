"""Reasons why TensorRT cannot run an engine, in words for users, from what it writes to its log.

Nothing is imported, as TensorRT's library can't be without a driver.
"""

from typing import List

_ADVICE = "build it again here, or name the ONNX file, of which an engine is built on the spot"
_OTHER_VERSION = "was built by another version of it"
_OTHER_GPU = "was built on another model of GPU"
_CAUSES = {
    "expecting library version": _OTHER_VERSION,
    "Version tag does not match": _OTHER_VERSION,
    "on an incompatible device": _OTHER_GPU,
    "across different models of devices": _OTHER_GPU,  # it only warns of this
    "Magic tag does not match": "is no engine",
}
"""Words in TensorRT's log, and what they mean."""


def engine_error(is_loaded: bool, log: List[str], version: str) -> str:
    """Return why an engine can't be used; empty for one that can.

    TensorRT returns None for an engine that it refuses, and writes the reason to its log. Of one
    that was built on another model with the same architecture it only warns; the times of such an
    engine are not those of this GPU, so it is refused.
    """
    refused = "TensorRT %s can't run the engine" % version
    for words, meaning in _CAUSES.items():
        for message in log:
            if words in message:
                return "%s, which %s; %s: %s" % (refused, meaning, _ADVICE, message)
    if is_loaded:
        return ""
    reason = "; ".join(log[-3:]) or "it gave no reason"
    return "%s: %s" % (refused, reason)
