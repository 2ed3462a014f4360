"""Task and findings of a replay: records that its parts hand each other."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .npz import Array
from .record import Expectation

Compare = Callable[[str, str, Dict[str, Any]], Dict[str, Any]]
"""Compares two .npz files by the closeness of an expectation, as compare.py does."""


class CannotRun(Exception):
    """A replay can't be done here; the text says why, and what to do."""


class Task(NamedTuple):
    """The task of both sides.

    Attributes:
        expected: What was seen before.
        load: The fields of the request that loads the model.
        inputs: The arrays of one batch.
        reference: The .npz file of the outputs that one side is held against, or None.
        work: A folder for outputs.
        compare: Compares outputs.
        seconds: The timed seconds of a round.
    """

    expected: Expectation
    load: Dict[str, Any]
    inputs: Sequence[Array]
    reference: Optional[str]
    work: str
    compare: Compare
    seconds: float = 2.0


class Seen(NamedTuple):
    """The findings of a replay.

    Attributes:
        shows: True where it is what was expected.
        undecided: True where it is neither that nor something else, as an interval stayed too wide.
        summary: One line for a person.
        details: Further lines, such as those of a crash.
        ratio: New over old; of outputs the largest difference as a multiple of what is allowed.
        low: The lower end of its interval.
        high: The upper end.
        output: The name of the output with the largest difference, or "".
        place: Its index there.
    """

    shows: bool
    summary: str
    details: Tuple[str, ...] = ()
    undecided: bool = False
    ratio: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    output: str = ""
    place: Tuple[int, ...] = ()


Rounds = List[Tuple[float, float]]
"""A quantity of the old and of the new side in each round."""
