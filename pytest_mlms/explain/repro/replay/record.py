"""The record of a bundle, repro.json: what runs, on which sides, and what is expected of it."""

import json
import math
import re
from typing import Any, Dict, NamedTuple, Optional, Tuple

FORMAT = 2
"""Raised when a key changes its meaning; a replay refuses another one than its own."""

NAME = "repro.json"

OUTPUTS = "outputs"
RATIO = "ratio"
CRASH = "crash"
LIMIT = "limit"
ANSWERS = "answers"
KINDS = (OUTPUTS, RATIO, CRASH, LIMIT, ANSWERS)

SCENARIOS = ("single_stream", "offline")

MOST_CALLS = 200
"""The most calls, or exits, of a new side that gives other outputs, or fails, now and then."""

_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(==[\w.+!-]+| @ (https?|git\+https)://[^\s]+)")
VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2}\w*)?")
_WORD = re.compile(r"\w[\w-]*")
_PATH = re.compile(r"[\w-][\w .+-]*(/[\w-][\w .+-]*)*")
_NUMBERS = ("a", "b", "ratio", "low", "high", "tolerance", "rtol", "atol", "limit")
_OPTION = re.compile(r"--(index-url|extra-index-url|find-links)=https?://\S+")


class Malformed(Exception):
    """A text is no record of a bundle, or one of a later format."""


class BundleSide(NamedTuple):
    """One side: the exact software that the model runs in.

    ``python`` is the exact version that was measured, such as 3.11.7. ``requirements`` are all
    packages, each as ``name==version`` or ``name @ address``. ``options`` are those of pip that say
    where packages are, such as ``--extra-index-url=…``. ``variables`` are those of the environment
    that were chosen for the measurement, in pairs.
    """

    name: str
    framework: str
    python: str
    requirements: Tuple[str, ...]
    options: Tuple[str, ...] = ()
    variables: Tuple[Tuple[str, str], ...] = ()


class Expectation(NamedTuple):
    """The failure as it was seen, and what a replay is held against.

    Attributes:
        kind: outputs (they differ), ratio (of a quantity, new over old), crash (of the new side),
            limit (a quantity of the new side alone is beyond it), or answers (the new side alone
            has the outputs of ``reference``, which are wrong).
        quantity: Such as agreement, latency, latency_p90, peak_memory, load_time, top1, crash.
        verdict: The verdict of the item.
        summary: What was seen, for a person.
        a: The old side's value in ``unit``; None where there is none.
        b: The new side's.
        unit: The base unit, such as s or B.
        ratio: New over old; of outputs the largest difference as a multiple of what is allowed.
        low: The lower end of the ratio's interval.
        high: The upper end.
        tolerance: How much worse the new side may be, as a share.
        better: lower or higher; which direction of a ratio is better.
        rtol: Of outputs, the relative difference that is allowed.
        atol: The absolute one; None: a small share of the size of like values.
        rules: Of outputs by their own names, the axis along which values are ``unlike``, and the
            ``share`` of the size of like values that is allowed.
        calls: How often the new side is asked, which gives other outputs now and then, or ends,
            which fails at its exit now and then.
        limit: The limit of one side's quantity, in ``unit``.
        scenario: How the calls that it is of come: single_stream or offline.
        crash: How the new side ended: SIGSEGV, "status 3", the class of an error, or "hang".
        at_exit: Whether it is the end of a process that fails.
    """

    kind: str
    quantity: str
    verdict: str
    summary: str
    a: Optional[float] = None
    b: Optional[float] = None
    unit: str = ""
    ratio: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    tolerance: Optional[float] = None
    better: str = "lower"
    rtol: float = 0.0
    atol: Optional[float] = None
    limit: Optional[float] = None
    crash: str = ""
    rules: Dict[str, Dict[str, Any]] = {}
    calls: int = 1
    at_exit: bool = False
    scenario: str = "single_stream"


class Record(NamedTuple):
    """The content of repro.json.

    ``files`` are paths in the bundle by role, ``inputs`` and ``reference`` those of .npz files.
    ``reference`` has the outputs that one side is held against; None where there are two sides, or
    where no outputs are compared.
    """

    title: str
    plugin: str
    predictor: str
    files: Dict[str, str]
    device: str
    threads: Optional[int]
    options: Dict[str, Any]
    inputs: str
    reference: Optional[str]
    old: Optional[BundleSide]
    new: BundleSide
    expected: Expectation
    notes: Tuple[str, ...] = ()


def to_text(record: Record) -> str:
    """Return the text of repro.json."""
    value = dict(record._asdict(), format=FORMAT)
    for key in ("old", "new", "expected"):
        if value[key] is not None:
            value[key] = dict(value[key]._asdict())
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_text(text: str) -> Record:
    """Return the record of a text; raises Malformed, which says what is wrong with it."""
    value = _object(text)
    if value.get("format") != FORMAT:
        raise Malformed(_format_problem(value.get("format")))
    try:
        return _record(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Malformed("%s is malformed: %s" % (NAME, error)) from None


def _format_problem(found: Any) -> str:
    if found == 1:
        return (
            "it is of an earlier format, and has a replay of its own: run it by itself, as "
            "'python FILE', or make it again with mlms repro"
        )
    later = isinstance(found, int) and found > FORMAT
    problem = "is of a later format" if later else "has no format that is known"
    return "%s %s (%r); read it with a newer pytest-mlms" % (NAME, problem, found)


def _object(text):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Malformed("%s is no object of JSON" % NAME)
    return value


def _record(value: Dict[str, Any]) -> Record:
    return Record(
        title=_text(value["title"]),
        plugin=_text(value["plugin"]),
        predictor=_matching(_WORD, value["predictor"], "the predictor"),
        files={
            _matching(_WORD, role, "a role"): _path(path) for role, path in value["files"].items()
        },
        device=_text(value["device"]),
        threads=_count(value["threads"]),
        options={_text(name): option for name, option in value["options"].items()},
        inputs=_path(value["inputs"]),
        reference=None if value["reference"] is None else _path(value["reference"]),
        old=None if value["old"] is None else _side(value["old"]),
        new=_side(value["new"]),
        expected=_expectation(value["expected"]),
        notes=tuple(_text(note) for note in value.get("notes", ())),
    )


def _side(value: Dict[str, Any]) -> BundleSide:
    requirements = tuple(
        _matching(_PACKAGE, text, "a requirement") for text in value["requirements"]
    )
    options = tuple(_matching(_OPTION, text, "an option of pip") for text in value["options"])
    return BundleSide(
        name=_text(value["name"]),
        framework=_text(value["framework"]),
        python=_matching(VERSION, value["python"], "a version of Python"),
        requirements=requirements,
        options=options,
        variables=tuple(
            (_matching(_WORD, name, "a variable"), _text(text))
            for name, text in value.get("variables", ())
        ),
    )


def _expectation(value: Dict[str, Any]) -> Expectation:
    if value["kind"] not in KINDS:
        raise ValueError("%r is none of %s" % (value["kind"], ", ".join(KINDS)))
    found = {field: value[field] for field in Expectation._fields if field in value}
    expected = Expectation(**found)  # records of earlier versions have fewer fields
    for field in ("quantity", "verdict", "summary", "unit", "better", "crash", "scenario"):
        found[field] = _text(getattr(expected, field))
    for field in _NUMBERS:
        if getattr(expected, field) is not Expectation._field_defaults[field]:
            _number(getattr(expected, field), field)
    _count(expected.calls)
    if expected.scenario not in SCENARIOS or not _is_whole(expected):
        raise ValueError("%r has no scenario or limit that is known" % expected.quantity)
    if (expected.tolerance or 0.0) <= -1 or expected.calls > MOST_CALLS:
        raise ValueError("tolerance is %r, calls %r" % (expected.tolerance, expected.calls))
    for rule in expected.rules.values():
        _count(rule.get("unlike"))
        _number(rule.get("share", 0.0), "share")
    return expected._replace(**found)


def _is_whole(expected: Expectation) -> bool:
    """Return whether a limit has its value."""
    return expected.kind != LIMIT or expected.limit is not None


def _text(value):
    if not isinstance(value, str):
        raise ValueError("%r is no text" % (value,))
    return "".join(one if one.isprintable() else " " for one in value)  # no commands to a terminal


def _number(value, field):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("%s is %r, which is no number" % (field, value))
    if not math.isfinite(value):
        raise ValueError("%s is %r, which is not finite" % (field, value))


def _count(value):
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError("%r is no whole number" % (value,))
    return value


def _matching(pattern, value, subject):
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError("%s is %r" % (subject, value))
    return value


def _path(value):
    path = _matching(_PATH, value, "a path")
    if ".." in path.split("/"):
        raise ValueError("a path is %r" % path)
    return path
