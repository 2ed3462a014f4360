"""Reading stacks.yaml, and [tool.mlms.stacks] in pyproject.toml."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AfterValidator, Field, ValidationError, model_validator

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.core.files import read_regular
from pytest_mlms.core.records import Library, Place, Serve, Stack
from pytest_mlms.core.text import find_control, redact
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.load import read, shown
from pytest_mlms.manifest.types import PATTERNS, Closed, Positive, Scalar, Seconds
from pytest_mlms.provide.stacks.variables import VARIABLE_PATTERN

STACK_FILES = ("stacks.yaml", "stacks.yml")

_MAX_BYTES = 4 << 20  # of pyproject.toml, which others write into, too

_RESERVED = {"all": "every stack that is declared", "lock": "the stacks of mlms.lock"}
"""Names that have a meaning for --mlms-stack or --mlms-against."""

_NAME = next(pattern for pattern, text in PATTERNS.items() if text.startswith("letters"))
_FILE_NAME = r"^[^/]+$"
_VERSION = r"^\d+\.\d+(\.\d+)?$"

_FLAGS = (
    "--no-deps",
    "--pre",
    "--prefer-binary",
    "--no-build-isolation",
    "--no-cache-dir",
)
_VALUED_OPTIONS = (
    "--index-url",
    "--extra-index-url",
    "--find-links",
    "--only-binary",
    "--no-binary",
)
"""The options of pip that a stack may have: none runs code or writes elsewhere."""


_Error = tuple[int, str]
"""A line, and what is wrong there."""


_NAME_AND_PLACE = re.compile(
    r"[\w.-]+\s*(\[[^]]*\])?(\s+@\s+|@\s*(\.{0,2}/|[a-z][a-z+]*:))", re.IGNORECASE
)
"""The beginning of a requirement that names where a package is, which uv takes as a path, too.

A folder may have such a sign in its name, as of Jenkins or of a version.
"""


def names_place(text: str) -> bool:
    """Return whether a requirement is a name and where its package is."""
    return _NAME_AND_PLACE.match(text) is not None


def is_wheel(text: str) -> bool:
    """Return whether a requirement is a wheel of this machine, no address of one."""
    is_address = "://" in text or names_place(text)
    return text.endswith(".whl") and not is_address


def _check_requirement(text: str) -> str:
    if is_wheel(text):
        return text
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        raise ValueError(
            f"{text!r} is not a requirement; write one as for pip, as in 'numpy==2.4.6'"
        ) from None


def _check_option(text: str) -> str:
    name, equals, _ = text.partition("=")
    allowed = _VALUED_OPTIONS if equals else _FLAGS
    if name not in allowed:
        valued = [f"{option}=…" for option in _VALUED_OPTIONS]
        known = ", ".join([*_FLAGS, *valued])
        raise ValueError(f"{text!r} is not an option that a stack may have; write some of {known}")
    return text


_Requirement = Annotated[str, AfterValidator(_check_requirement)]
_PipOption = Annotated[str, AfterValidator(_check_option)]
_LibraryName = Annotated[str, Field(pattern=_FILE_NAME)]
_VariablePattern = Annotated[
    str, Field(pattern=VARIABLE_PATTERN, description="names of variables, with * for any part")
]
_VariableName = Annotated[str, Field(pattern=r"^[^=]+$")]
_Core = Annotated[int, Field(ge=0)]


class SystemLibrary(Closed):
    """A library of the system that agents find under another name."""

    library: str = Field(pattern=_FILE_NAME, description="its name there, as in libmpi.so.40")
    package: str = Field(description="the system's package that has it, as in libopenmpi3")


class AgentEntry(Closed):
    """A program that is an agent itself."""

    command: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, description="the program and its arguments"),
    ]


def _check_command(command: list[str]) -> list[str]:
    if not any("{port}" in word for word in command):
        raise ValueError("no word has {port}, where the server gets its port; write it into one")
    return command


def _check_endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_plain = parts.hostname and not set("@?#") & set(text) and parts.path.isascii()
        is_good = is_plain and parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:  # of a port
        is_good = False
    if not is_good or find_control(text) or " " in text:
        raise ValueError(
            f"{redact(text)!r} is no address of a server; write one as in 'http://127.0.0.1:8000', "
            f"without a user or a query"
        )
    return text


class ServeEntry(Closed):
    """How a server of models is started, which the predictor then asks."""

    command: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, description="the program and its arguments, with {port}"),
        AfterValidator(_check_command),
    ]
    ready: Annotated[
        str, Field(pattern=r"^(/[!-~]*)?$", description="a path, as in /v2/health/ready")
    ] = ""
    timeout: Annotated[Seconds, Field(gt=0)] = 120.0


class StackEntry(Closed):
    """One stack: an interpreter, requirements for an environment, a container image, an agent.

    Its models may be on a server that is started, or at an endpoint.
    """

    framework: str | None = Field(
        None, pattern=_NAME, description="its predictor's name, as in onnxruntime"
    )
    interpreter: str | None = Field(None, min_length=1, description="current, or the path of one")
    python: str | None = Field(
        None, pattern=_VERSION, description="a version in quotes, as in '3.11'"
    )
    requirements: list[_Requirement] = []
    installer: Literal["pip", "uv"] = "pip"
    pip_options: list[_PipOption] = []
    lock: str | None = Field(None, description="a file beside this one")
    container: str | None = Field(
        None, pattern=r"^[A-Za-z0-9]", description="an image, as in name:1"
    )
    agent: AgentEntry | None = None
    serve: ServeEntry | None = None
    endpoint: Annotated[str, AfterValidator(_check_endpoint)] = ""
    libraries: dict[_LibraryName, SystemLibrary] = {}
    env: dict[_VariableName, str] = {}
    env_passthrough: list[_VariablePattern] = []
    threads: Positive | None = None
    cores: list[_Core] = []
    variant: Annotated[
        str, Field(pattern=_NAME, description="the variant of models that it runs")
    ] = ""
    options: dict[str, Scalar] = Field({}, description="options of its predictor")

    @model_validator(mode="after")
    def _check_kind(self) -> StackEntry:
        """Check that the entry is exactly one kind of stack, and has the keys of that kind only."""
        if self.container and self.requirements:
            raise ValueError(
                "a container has its own packages; leave out 'requirements', or 'container'"
            )
        if self.requirements and self.interpreter:
            raise ValueError(
                "an environment is made with 'python'; leave out 'interpreter', or 'requirements'"
            )
        if self.serve or self.endpoint:
            self._check_server()
        elif not (self.requirements or self.interpreter or self.container or self.agent):
            keys = "'requirements: […]', 'interpreter: …', 'container: …' or 'agent: …'"
            raise ValueError(f"has nothing to run in; write {keys}")
        if self.agent:
            self._check_no_other_software()
        if not self.framework and (self.requirements or self.container or self.agent):
            raise ValueError(
                "'framework' is missing; write 'framework: …', the predictor that it is for"
            )
        if self.options and not self.framework:
            raise ValueError("'options' are of one predictor; write its 'framework: …' beside them")
        if not self.requirements:
            self._check_no_environment_keys()
        return self

    def _check_server(self) -> None:
        key = "serve" if self.serve else "endpoint"
        if self.serve and self.endpoint:
            raise ValueError("'serve' starts a server, and 'endpoint' names one; leave out one")
        for other in ("agent", "container"):
            if getattr(self, other):
                raise ValueError(f"{key!r} isn't there for {other!r} yet; leave out one of them")
        if not self.framework:
            raise ValueError(
                f"'framework' is missing; write the predictor that speaks with the server beside "
                f"{key!r}, as in 'framework: oip'"
            )

    def _check_no_other_software(self) -> None:
        for key in ("requirements", "interpreter", "container"):
            if getattr(self, key):
                raise ValueError(f"an agent brings its own software; leave out {key!r}, or 'agent'")

    def _check_no_environment_keys(self) -> None:
        for key in ("python", "pip_options", "lock"):
            if getattr(self, key):
                raise ValueError(
                    f"{key!r} is for an environment; write its 'requirements', or leave it out"
                )

    def stack(self, name: str, place: Place, folder: Path) -> Stack:
        """Return the stack; its paths are relative to ``folder``."""
        options = [_located_option(option, folder) for option in self.pip_options]
        requirements = [_located_wheel(text, folder) for text in self.requirements]
        libraries = []
        for key, found in self.libraries.items():
            libraries.append(Library(key, found.library, found.package))
        return Stack(
            name,
            self.framework or "",
            interpreter=self._located_interpreter(folder) or self._default_interpreter(),
            python=self.python,
            requirements=tuple(requirements),
            installer=self.installer,
            options=tuple(options),
            lock=folder / self.lock if self.lock else None,
            container=self.container,
            libraries=tuple(libraries),
            env=tuple(self.env.items()),
            env_passthrough=tuple(self.env_passthrough),
            threads=self.threads,
            cores=tuple(self.cores),
            variant=self.variant,
            model_options=tuple(self.options.items()),
            agent=tuple(_located_words(self.agent.command, folder) if self.agent else ()),
            serve=self._served(folder),
            endpoint=self.endpoint,
            place=place,
        )

    def _served(self, folder: Path) -> Serve | None:
        if self.serve is None:
            return None
        command = tuple(_located_words(self.serve.command, folder))
        return Serve(command, self.serve.ready, self.serve.timeout)

    def _default_interpreter(self) -> str | None:
        """Return the interpreter of the client of a server whose stack names none."""
        has_server = self.serve or self.endpoint
        return "current" if has_server and not self.requirements else None

    def _located_interpreter(self, folder: Path) -> str | None:
        """Return the interpreter; one that is a path of this machine is made absolute."""
        if self.interpreter is None or self.container or "/" not in self.interpreter:
            return self.interpreter
        path = Path(os.path.expanduser(self.interpreter))
        return str(folder / path)


def _located_words(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield the words of a command, those that are paths as absolute ones.

    The program may have any path, an argument is one where it begins as such.
    """
    for place, word in enumerate(command):
        is_path = word.startswith(("./", "../", "~/")) or (place == 0 and "/" in word)
        yield os.path.normpath(folder / os.path.expanduser(word)) if is_path else word


def _located_wheel(requirement: str, folder: Path) -> str:
    if is_wheel(requirement):
        return str(folder / requirement)
    return requirement


def _located_option(option: str, folder: Path) -> str:
    name, _, value = option.partition("=")
    if name != "--find-links" or urlsplit(value).scheme:
        return option
    return f"{name}={folder / value}"


def load_stacks(path: Path) -> dict[str, Stack]:
    """Return the stacks that a stacks.yaml or a pyproject.toml declares, by name.

    Raises ManifestError with all errors of the file, each with its line.
    """
    document = _read(path)
    errors = list(document.errors)
    folder = path.absolute().parent
    stacks = {}
    for name, value in (document.value or {}).items():
        entry, found = _validate(name, value, document)
        errors += found
        if entry:
            place = Place(shown(path), document.line((name,)))
            stacks[name] = entry.stack(name, place, folder)
    if errors:
        raise _error(path, errors)
    return stacks


def _error(path: Path, errors: Sequence[_Error]) -> ManifestError:
    file = shown(path)
    lines = []
    for line, text in sorted(errors):
        lines.append(f"{file}:{line}: {text}")
    return ManifestError("\n".join(lines))


def _read(path: Path) -> yaml12.Document:
    if path.suffix == ".toml":
        return _read_toml(path)
    return read(path, "a stack begins with 'name: {framework: …}'")


def _validate(
    name: str, value: Any, document: yaml12.Document
) -> tuple[StackEntry | None, list[_Error]]:
    """Return the entry, or None and its errors."""
    problem = _problem_of(name)
    if problem:
        line = document.line((name,))
        return None, [(line, problem)]
    try:
        return StackEntry.model_validate(value), []
    except ValidationError as error:
        from pytest_mlms.manifest.messages import describe

        errors = []
        for found in error.errors(include_url=False):
            found["loc"] = (name, *found["loc"])
            errors.append(describe(found, document, StackEntry, 1))
        return None, errors


def _problem_of(name: str) -> str:
    """Return the error in a stack's name, "" for a good one."""
    if name in _RESERVED:
        return f"{name!r} means {_RESERVED[name]}; choose another name"
    if not re.search(_NAME, name):
        return f"found {name!r}; write a stack's name in {PATTERNS[_NAME]}"
    return ""


def _read_toml(path: Path) -> yaml12.Document:
    """Return [tool.mlms.stacks] with the line of each stack.

    A TOML parser keeps no lines, so they are searched for.
    """
    try:
        text = read_regular(path, _MAX_BYTES).decode("utf-8")
        stacks = _parse_toml(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        return yaml12.Document(errors=[(1, f"can't be read: {reason}")])
    if not isinstance(stacks, Mapping):
        problem = "tool.mlms.stacks holds no keys and values; write [tool.mlms.stacks.NAME]"
        return yaml12.Document(errors=[(1, problem)])
    document = yaml12.Document(dict(stacks))
    for name, value in stacks.items():
        line = _line_of(name, text)
        _set_line(document.lines, yaml12.joined("", name), value, line)
        control = find_control("".join(_texts({name: value})))
        if control:
            problem = f"has the control character {control!r} in a text; remove it"
            document.errors.append((line, problem))
    return document


def _parse_toml(text: str) -> Any:
    """Return what tool.mlms.stacks holds; raises ValueError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    tool = tomllib.loads(text).get("tool", {})
    return tool.get("mlms", {}).get("stacks", {})


def _line_of(name: str, text: str) -> int:
    """Return the line that has a stack's name as a key or in a table's header, 1 if none has."""
    key = rf"[\"']?{re.escape(name)}[\"']?\s*[\]=]"
    found = re.search(rf"^\s*(\[tool\.mlms\.stacks\.)?{key}", text, re.MULTILINE)
    if found is None:
        return 1
    return text.count("\n", 0, found.end()) + 1


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, keys too."""
    if isinstance(value, str):
        yield value
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield key
            yield from _texts(part)
    if isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _set_line(lines: yaml12.Lines, path: str, value: Any, line: int) -> None:
    """Give a value and everything in it one line, so that errors can name their keys."""
    lines.add(path, line)
    if isinstance(value, Mapping):
        for key, part in value.items():
            _set_line(lines, yaml12.joined(path, key), part, line)
    if isinstance(value, list):
        for index, part in enumerate(value):
            _set_line(lines, yaml12.joined(path, index), part, line)
