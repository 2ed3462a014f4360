"""Text from elsewhere, made fit for a terminal and for XML, and without the secrets in it."""

from __future__ import annotations

import difflib
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Controls of a terminal but tab and newline, and what XML and UTF-8 can't have."""

_LONGEST_WORD = 500

_SCHEMES = ("postgres", "postgresql", "postgresql+psycopg", "sqlite")
_NO_FOLDERS = ("file", "http", "https")
"""Further schemes, of which only the exact word is one: folders are called files."""

_UNSAFE = re.compile(rf"{_CONTROL.pattern[:-1]}\u202a-\u202e\u2066-\u2069]")
"""These, and the characters that make text run the other way than it is written."""


def close_words(word: str, known: Sequence[str], most: int = 1, likeness: float = 0.6) -> list[str]:
    """Return the known words that a word may stand for; none for one longer than any name."""
    if len(word) > _LONGEST_WORD:
        return []
    return difflib.get_close_matches(word, known, most, likeness)


def seems_url(text: str) -> bool:
    """Return whether an address without :// was probably meant to be a URL, and not a path.

    It begins with a scheme, a host or a user before a colon, or with about a known scheme before
    two slashes. ``./`` before it makes it a path, and a drive has one letter.
    """
    if ":" in text.partition("/")[0][2:]:
        return True
    word, slashes, _ = text.partition("//")
    if not slashes or "/" in word:
        return False
    name = word.lower()
    return name in _NO_FOLDERS or bool(close_words(name, _SCHEMES, likeness=0.75))


def find_control(text: str) -> str:
    """Return the first control character of a text that isn't a tab or a newline; "" for none."""
    found = _CONTROL.search(text)
    return found[0] if found else ""


def visible(text: str) -> str:
    r"""Return a text with each control character as its escape, such as ``\x1b``."""
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


@lru_cache(maxsize=4096)
def columns_of(text: str) -> int:
    """Return the columns of a terminal that a text takes, as UAX 11 has them.

    A wide character, as of Chinese, takes two, and one that combines with the one before none.
    """
    if not text or max(text) < "\u0300":
        return len(text)
    marks = sum(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(each) in "WF" for each in text)


def beginning_of(text: str, columns: int) -> str:
    """Return as much of a text as so many columns have room for."""
    ends = itertools.accumulate(map(columns_of, text))
    return text[: sum(end <= columns for end in ends)]


def encodable(text: str) -> str:
    r"""Return a text with what UTF-8 can't have as its escape, such as ``\ud800``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters: its beginning and its end."""
    if len(text) <= most:
        return text
    kept = most - 3
    end = kept // 3
    return f"{text[: kept - end]} … {text[len(text) - end :]}"


def file_stem(path: str) -> str:
    """Return a name for the results of a file: the file's name in letters, digits and ._-."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    while "." in name.lstrip("."):
        name = name.rpartition(".")[0]
    name = re.sub(r"^[a-z0-9_]*=", "", name)
    name = re.sub(r"(-symbol|_predict)$", "", name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "model"


_HIDDEN = "***"
_ADDRESS = re.compile(r"""(?<=://)[^\s"'<>)]+""")
"""The rest of an address behind its scheme."""
_DATABASE = re.compile(r"""(postgres(?:ql)?(?:\+\w{1,20})?://)[^\s"'<>]{0,4096}@""")
"""The user of a database's URL, whose password may have what others would have to escape."""

_VALUE = re.compile(r"""([?&][\w.~%+\[\]-]+=)[^\s&#"'<>)]+""")
_OF_PACKAGES = ("egg=", "subdirectory=", "sha256=", "sha384=", "sha512=", "sha1=", "md5=")
"""Fragments that say what an address is of."""

_SECRET = (
    r"(?i:passw(?:or)?d|passphrase|secret|credentials?|(?:api|access|private|secret)[_-]?key"
    r"|(?:access|api|auth|bearer|id|refresh)[_-]?token)"
)
_WRITTEN = r"""[^\s"',;&)]+"""
_ASSIGNED = re.compile(rf"""((?:TOKEN|{_SECRET})["']?=["']?){_WRITTEN}""")
_OPTION = rf"--?[\w-]{{0,40}}?(?:(?i:token)|{_SECRET})"
_GIVEN = re.compile(rf"""((?<![\w-]){_OPTION}[= ]["']?)(?!-){_WRITTEN}""")
_LAST_OPTION = re.compile(_OPTION)
_HEADER = re.compile(
    rf"""((?i:(?:authorization|cookie|x-api-key|private-token)["']?\s?[:=]\s?["']?)
    (?i:(?:basic|bearer|digest|token)\s)?|(?<!\w)(?i:bearer\s)(?=\S{{8}})){_WRITTEN}""",
    re.VERBOSE,
)
_WORDS = ("token", "passw", "passphrase", "secret", "credential", "key", "bearer", "auth", "cookie")
"""One of which is in each text that these find."""

_ROOTS = (
    "app|builds|content|data|etc|export|github|home|media|mnt|nfs|opt|private|proc|root|run|runner"
    "|scratch|srv|tmp|Users|usr|var|work|workspace"
)
"""First folders of paths on machines. Names of layers begin with a slash, too."""

_NAME = re.compile(r"\.(?=\w*[A-Za-z])\w{1,10}\b(?!/)")
"""The end of a file's name. Layers are numbered behind a point, as in layer1.0."""

_PLACE = re.compile(
    rf"""
    (?P<address>https?://[^\s'"<>|;,)\]]+
        | (?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w
        | (?<![\w.])\d{{1,3}}(?:\.\d{{1,3}}){{3}}:\d+
        | (?<![\w.])(?:10\.\d{{1,3}}|192\.168|172\.(?:1[6-9]|2\d|3[01]))
          (?:\.\d{{1,3}}){{2}}(?![\w.]))
    | (?P<quote>['"])(?P<quoted>[^'"\n]*)(?P=quote)
    | file://[^\s'"<>|;,)\]]+
    | (?<![\w/.:-])/(?:{_ROOTS})(?:/[^\s'"<>|:;,()\[\]]*|(?![\w/]))
    | (?<![\w.])(?:~|[A-Za-z]:)[\\/][^\s'"<>|;,()\[\]:]*
    | (?<![^\s'"<>|;,()\[\]=])(?P<word>[^\s'"<>|:;,()\[\]=/]*/[^\s'"<>|:;,()\[\]]*)
    """,
    re.VERBOSE,
)
"""An address of the web, of mail or of a network, or what may be a path: a text in quotes, a file's
address, a place below one of the roots or a home, or a word with a slash. It looks at no character
often, whatever a stranger wrote.
"""

_QUOTED_PATH = re.compile(rf"file://|~/|[A-Za-z]:[\\/]|/(?:{_ROOTS})/")

_PUBLIC = re.compile(r"https?://(?:github\.com|pypi\.org)/")
"""Addresses that are no one's own."""

_CODE = re.compile(r"[\w.+-]+\.(?:py|cc|cpp|cxx|cu|cuh|c|h|hpp|rs|so[\d.]*|dylib|dll)")
"""Files of programs, whose names say what failed and not whose machine it was."""


def anonymous(text: str, host: str = "") -> str:
    """Return ``text`` without secrets, paths, private addresses, and the name of a host.

    A path is replaced by PATH; of a source file or a library its name stays. It is recognised by
    its form: what is written here may have happened on another machine.
    """
    text = "".join(_without_places(redact(text)))
    if host:
        text = re.sub(rf"(?<!\w){re.escape(host)}(?!\w)", "HOST", text)
    return text


def _without_places(text: str) -> Iterator[str]:
    """Yield a text in parts, with what stands for its addresses and paths."""
    done = at = 0
    while found := _PLACE.search(text, at):
        end = _end_of_place(found)
        at = max(end, found.start() + 1)
        if end:
            yield text[done : found.start()]
            yield _in_place_of(text[found.start() : end], found)
            done = end
    yield text[done:]


def _end_of_place(found: re.Match[str]) -> int:
    """Return where an address or a path ends, 0 where it is none."""
    if found["quote"] is not None:
        quoted = found["quoted"]
        is_file = "/" in quoted and any(end.end() == len(quoted) for end in _NAME.finditer(quoted))
        return found.end() if is_file or _QUOTED_PATH.match(quoted) else 0
    if found["word"] is not None:
        slash = found["word"].index("/")
        ends = [end.end() for end in _NAME.finditer(found["word"], slash)]
        return found.start() + ends[-1] if ends else 0
    return found.end()


def _in_place_of(place: str, found: re.Match[str]) -> str:
    """Return what stands for an address or a path."""
    if found["address"]:
        return place if _PUBLIC.match(place) else "ADDRESS"
    quote = found["quote"] or ""
    name = re.split(r"[\\/]", place.strip(quote))[-1]
    kept = name if _CODE.fullmatch(name) else "PATH"
    return f"{quote}{kept}{quote}"


def redact(text: str) -> str:
    """Return ``text`` without users and passwords, and without the values of queries.

    All values go, not only of known names such as X-Amz-Signature, sig or token: each service has
    names of its own. The names stay, so that a person sees which address it was. Beside addresses
    it is what is given to options, variables and headers with the name of a secret.
    """
    if "://" in text:
        text = _DATABASE.sub(rf"\1{_HIDDEN}@", text)
        text = _ADDRESS.sub(_without_secrets, text)
    if "?" in text:
        text = _VALUE.sub(rf"\1{_HIDDEN}", text)
    lowered = text.lower()
    if any(word in lowered for word in _WORDS):
        for pattern in (_HEADER, _GIVEN, _ASSIGNED):
            text = pattern.sub(rf"\1{_HIDDEN}", text)
    return text


def _without_secrets(found: re.Match[str]) -> str:
    """Return what follows an address' scheme without its user, and without values."""
    rest = found[0]
    begin = re.search(r"[/?#]", rest)
    host = rest[: begin.start()] if begin else rest
    port = host.rpartition("]")[2].partition(":")[2]
    if "@" in host:
        rest = f"{_HIDDEN}@{rest[host.rindex('@') + 1 :]}"
    elif "@" in rest and port and not port.isdecimal():  # the password has one of these
        rest = f"{_HIDDEN}@{rest[rest.rindex('@') + 1 :]}"
    rest, hash_, fragment = rest.partition("#")
    path, mark, query = rest.partition("?")
    query = "&".join(map(_without_value, query.split("&")))
    if "=" in fragment and not fragment.startswith(_OF_PACKAGES):
        fragment = "&".join(map(_without_value, fragment.split("&")))
    return path + mark + query + hash_ + fragment


def _without_value(part: str) -> str:
    """Return a part of a query without its value; one that has no name is a value."""
    name, equals, value = part.partition("=")
    if equals:
        return f"{name}={_HIDDEN if value else ''}"
    return _HIDDEN if part else ""


def redact_all(value: Any) -> Any:
    """Return a value of JSON with its texts redacted, and the word behind an option of a secret."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): redact_all(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [
            _HIDDEN if isinstance(entry, str) and _is_secret_option(before) else redact_all(entry)
            for before, entry in zip([None, *value], value, strict=False)
        ]
    return value


def _is_secret_option(word: object) -> bool:
    return isinstance(word, str) and _LAST_OPTION.fullmatch(word) is not None
