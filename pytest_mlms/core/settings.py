"""Facts that options are declared by and lower storeys keep: it is imported by every pytest run."""

OF_A_COMMAND = "_MLMS_OF_A_COMMAND"
"""The variable of a session of pytest that a command started for its own ends."""

DOWNLOAD_SIZE = 20 * 2.0**30
"""The most bytes of a file that is downloaded."""

DOWNLOAD_TIME = 3600.0
"""The most seconds for it."""

UNPACK_LIMIT = 64 * 2.0**30
"""The most bytes that it unpacks to."""

LEVELS = (
    "application",
    "model",
    "layer",
    "library",
    "kernel",
    "hardware",
)
"""Levels of spans, from the outermost to the innermost."""
