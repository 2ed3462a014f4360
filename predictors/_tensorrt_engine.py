"""What TensorRT's words on an engine mean to a user.

Pure, as its library can't be imported without a driver.
"""

_ADVICE = "build it again here, or name the ONNX file, of which an engine is built on the spot"
_CAUSES = (
    ("expecting library version", "was built by another version of it"),
    ("Version tag does not match", "was built by another version of it"),
    ("on an incompatible device", "was built on another model of GPU"),
    (
        "across different models of devices",
        "was built on another model of GPU",
    ),  # it only warns of this
    ("Magic tag does not match", "is no engine"),
)


def engine_fault(is_there, said, version):
    """Return why an engine can't be used, in words for users; empty if it can.

    TensorRT gives None for an engine that it refuses, and the reason to its log. Of one that was
    built on another model with the same architecture it only warns; the times of such an engine are
    not those of this GPU, so it is refused.
    """
    for words, meaning in _CAUSES:
        for text in said:
            if words in text:
                return "TensorRT %s can't run the engine, which %s; %s: %s" % (
                    version,
                    meaning,
                    _ADVICE,
                    text,
                )
    if is_there:
        return ""
    return "TensorRT %s can't run the engine: %s" % (
        version,
        "; ".join(said[-3:]) or "it gave no reason",
    )
