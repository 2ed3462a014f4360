"""The plugin's configuration: every option, read once into a frozen record and checked.

Every pytest run on a machine that has the plugin imports this, so it imports nothing heavy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.settings import OF_A_COMMAND
from pytest_mlms.options import OPTIONS, Options, flag_value, is_set, read_option, source_of

SENT = (*(option.name for option in OPTIONS if option.is_sent), "lock")
"""The fields of Config whose files are copied to the hosts of remote workers."""

MANIFEST_SUFFIXES = (".yaml", ".yml")

_DOCUMENTS = ("benchmark_json", "bencher_json", "metrics", "report", "upgrade_report")
_OF_RUNS = ("history", "push", *_DOCUMENTS)
"""Uses of a project's own runs: the sessions of a command are none of them."""

LOCK = "lock"
"""The value of --mlms-against that stands for the locked stack of each item."""

LOCK_FILE = "mlms.lock"
"""The name of the lock file, in the root directory."""

_OWN_KEYS = frozenset({"models", "framework", "task", "evaluate", "thresholds"})
_KEYS = _OWN_KEYS | {"name", "version", "inputs", "outputs", "dataset"}
_TYPICAL = 3  # keys, at least one of them our own, of a file without "models"

_KEY = re.compile(rb"""\b(models|framework|task|evaluate|thresholds)\b["']?\s*:""")
_KEY_OF_A_LINE = re.compile(rb"^(\w+)\s*:", re.MULTILINE)
_LABEL = re.compile(r"[A-Za-z][\w.-]*=[\w.+-]+")


def draw_seed(asked: int | None) -> int:
    """Return the seed of an item's own draws: the one that was asked for, else a new one."""
    return asked or 1 + int.from_bytes(os.urandom(4), "big")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Config(Options):
    """Every option of the plugin, checked, and where the run stands; paths are absolute.

    It has no repr, since addresses may have passwords, and no code that nothing calls: each run of
    pytest on the machine pays for what is generated.

    ``lock`` is the lock file that --mlms-against names, if it names one. ``outside`` has the
    folders of a remote worker whose files are outside of the controller's root directory, relative
    to either root.
    """

    root: Path
    lock: Path | None = None
    norecursedirs: Sequence[str] = ()
    outside: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Config:
        """Read and check the options.

        A remote worker takes them from its controller, whose paths would mean nothing there.
        Raises pytest.UsageError, which names the option and what it must be.
        """
        packed = getattr(config, "workerinput", {}).get("mlms_options")
        if packed:
            return cls._unpack(packed, config.rootpath)
        values = {option.name: read_option(config, option) for option in OPTIONS}
        if OF_A_COMMAND in os.environ:
            values.update(_without_uses_of_runs(typed_flags(config)))
        values["manifests"] += tuple(_named_manifests(config, values["manifests"]))
        values["history"] = _history(config, values["history"], values["results"])
        values["full"] = values["full"] or _sets_what_is_measured(config)
        values["norecursedirs"] = config.getini("norecursedirs")
        made = cls(root=config.rootpath, lock=_named_lock(values["against"], config), **values)
        _check(made, config)
        return made

    @property
    def upgrade(self) -> bool:
        """True if cases become upgrade items, in place of the others."""
        if self.aa:
            return True
        return bool(self.against) and not self.sides

    @property
    def baselines(self) -> tuple[str, ...]:
        """The stacks that --mlms-against names, without a lock file."""
        return tuple(name for name in self.against if not _is_lock(name))

    @property
    def measures_in_full(self) -> bool:
        """True if no performance item ends early.

        What is compared with other runs is always measured in full.
        """
        documents = (self.benchmark_json, self.bencher_json, self.metrics, self.history, self.push)
        is_compared = bool(self.sides) or any(place is not None for place in documents)
        return self.full or is_compared

    @property
    def sides(self) -> tuple[str, ...]:
        """The labels of the two hosts that are compared, the candidate's first.

        Empty where the sides of an upgrade are stacks.
        """
        names = (*self.stack, *self.against)
        if self.against and all(_is_label(name) for name in names):
            return names
        return ()

    def pack(self, place: Callable[[Path], str]) -> dict[str, Any]:
        """Return the options as plain values for a worker on another host.

        ``place`` returns where that host has a path, relative to its root directory. Of paths only
        those are told that a worker uses: the controller alone writes documents and pushes.
        """
        packed: dict[str, Any] = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, Path):
                is_told = option.name in (*SENT, "root", "results")
                value = {"path": place(value)} if is_told else None
            elif _are_paths(value):
                value = {"paths": [place(path) for path in value]}
            packed[option.name] = value
        return {**packed, "history": None, "push": None, "full": self.measures_in_full}

    @classmethod
    def _unpack(cls, packed: dict[str, Any], root: Path) -> Config:
        values: dict[str, Any] = {}
        for name, value in packed.items():
            values[name] = value
            if name == "outside":
                continue
            if isinstance(value, dict) and "path" in value:
                values[name] = root / value["path"]
            elif isinstance(value, dict):
                paths = [root / path for path in value["paths"]]
                values[name] = tuple(paths)
        return cls(**values)


def _without_uses_of_runs(typed: Collection[str]) -> dict[str, Any]:
    """Return the defaults of what a project does with its own runs, unless it was typed."""
    options = [option for option in OPTIONS if option.name in _OF_RUNS]
    return {option.name: option.default for option in options if option.flag not in typed}


def _history(config: pytest.Config, value: str | None, results: Path) -> str | None:
    """Return the absolute address of the history that the run is added to."""
    if value is None:
        return None
    address = value or os.environ.get("MLMS_HISTORY") or str(results / "history.sqlite")
    from pytest_mlms.core.text import seems_url

    if "://" in address or seems_url(address):  # the latter will be refused
        return address
    is_ini = flag_value(config, "mlms_history") is None
    folder = config.rootpath if is_ini else config.invocation_params.dir
    return os.path.normpath(folder / os.path.expanduser(address))


def _named_manifests(config: pytest.Config, roots: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the manifests that the command line names, alone or in node ids, outside of ``roots``.

    Other plugins collect YAML, too.
    """
    for path in _yaml_arguments(config):
        is_below = any(path.is_relative_to(root) for root in roots)
        if not is_below and os.path.isfile(path) and has_keys_of_manifests(path.read_bytes()):
            yield path


def _yaml_arguments(config: pytest.Config) -> Iterator[Path]:
    """Yield the absolute paths of the YAML files that the command line names, there or not."""
    for name in dict.fromkeys(argument.partition("::")[0] for argument in config.args):
        if name.endswith(MANIFEST_SUFFIXES):
            yield Path(os.path.normpath(config.invocation_params.dir / name))


def check_named(config: pytest.Config) -> None:
    """Raise UsageError for a YAML file on the command line that isn't there."""
    for path in _yaml_arguments(config):
        if not os.path.exists(path):
            name = os.path.relpath(path, config.invocation_params.dir)
            raise pytest.UsageError(f"there is no {name}; name a manifest that is there")


def has_keys_of_manifests(data: bytes) -> bool:
    """Return whether YAML has the top keys of a manifest, or of MLModelScope's.

    Those are ``models``, or enough others, as any one may be misspelt.
    """
    if not _KEY.search(data):
        return False
    from pytest_mlms.manifest import yaml12

    content = yaml12.parse(data.decode("utf-8-sig", "replace")).value
    is_readable = isinstance(content, dict)
    keys = {key.decode() for key in _KEY_OF_A_LINE.findall(data)}  # of a file with an error
    if is_readable:
        keys = {key for key in content if isinstance(key, str)}
    is_original = "framework" in keys and not keys.isdisjoint(("input", "inputs"))
    if "models" in keys or is_original or (not is_readable and "framework" in keys):
        return True
    return len(keys & _KEYS) >= _TYPICAL and not keys.isdisjoint(_OWN_KEYS)


def _sets_what_is_measured(config: pytest.Config) -> bool:
    """Return whether a person has chosen how many processes are timed, or for how long."""
    return is_set(config, "mlms_processes") or is_set(config, "mlms_duration")


def _is_label(name: str) -> bool:
    """Return whether a stack's name is a label of hosts, such as driver=570."""
    return _LABEL.fullmatch(name) is not None


def _is_lock(name: str) -> bool:
    """Return whether a value of --mlms-against is a lock file."""
    return name == LOCK or name.startswith(f"{LOCK}:")


def _named_lock(against: tuple[str, ...], config: pytest.Config) -> Path | None:
    """Return the lock file among the values of --mlms-against; raises UsageError.

    ``lock`` is that of the root directory, and ``lock:FILE`` any.
    """
    locks = [name for name in against if _is_lock(name)]
    if not locks:
        return None
    source = source_of(config, "mlms_against")
    if len(locks) > 1:
        raise pytest.UsageError(f"{source}: {' and '.join(locks)} are two lock files; name one")
    on_command_line = flag_value(config, "mlms_against") is not None
    folder = config.invocation_params.dir if on_command_line else config.rootpath
    name = locks[0].partition(":")[2]
    path = config.rootpath / LOCK_FILE
    if name:
        path = Path(os.path.normpath(folder / os.path.expanduser(name)))
    if not os.path.isfile(path):
        problem = f"there is no {path}"
        raise pytest.UsageError(f"{source} {locks[0]}: {problem}; write it by 'mlms lock write'")
    return path


def _are_paths(value: Any) -> bool:
    if not isinstance(value, tuple):
        return False
    return all(isinstance(entry, Path) for entry in value)


def _check(options: Config, config: pytest.Config) -> None:
    """Refuse options that don't fit, before anything is collected or measured."""
    for name in ("manifests", "predictors"):
        for path in getattr(options, name):
            if not os.path.exists(path):
                source = source_of(config, f"mlms_{name}")
                raise pytest.UsageError(f"{source}: there is no {path}; name a folder that exists")
    _check_manifests(options, config)
    _check_sides(options)
    _check_folder("results", options.results, config)
    _check_folder("cache", options.cache, config)
    for name in _DOCUMENTS:
        _check_document(name, getattr(options, name), config)
    _check_trace(options, config)
    _check_uses(options, config)


def _check_manifests(options: Config, config: pytest.Config) -> None:
    """Refuse a path without a manifest: a gate that runs nothing must not look like one that
    passes.
    """
    for path in options.manifests:
        if any(name.endswith(MANIFEST_SUFFIXES) for name in _file_names(path)):
            continue
        source = source_of(config, "mlms_manifests")
        problem = "is no .yaml file" if path.is_file() else "has no .yaml file"
        raise pytest.UsageError(f"{source}: {path} {problem}; name a manifest, or a folder of them")


def _file_names(path: Path) -> Iterator[str]:
    """Yield the name of a file, or of every file below a folder."""
    if path.is_file():
        yield path.name
    for _, _, names in os.walk(path):
        yield from names


def _check_sides(options: Config) -> None:
    """Refuse labels of hosts beside anything else than one more label."""
    names = (*options.stack, *options.against)
    labels = [name for name in names if _is_label(name)]
    if not labels:
        return
    sizes = (len(options.stack), len(options.against), len(labels))
    if sizes == (1, 1, 2):
        return
    version = labels[0].replace("=", "==")
    raise pytest.UsageError(
        f"{labels[0]} is a label of hosts: name one with --mlms-stack and one with "
        f"--mlms-against and nothing else (a version has two signs: {version})"
    )


def _check_folder(name: str, path: Path | None, config: pytest.Config) -> None:
    """Refuse a folder that can't be made, as there is a file.

    What the system refuses to look at, such as a name that is too long, it refuses to make later.
    """
    if path is None:
        return
    nearest = path
    while not os.path.exists(nearest):
        nearest = nearest.parent
    if not os.path.isdir(nearest):
        source = source_of(config, f"mlms_{name}")
        raise pytest.UsageError(f"{source}: {nearest} is a file; name a folder")


def _check_document(name: str, path: Path | None, config: pytest.Config) -> None:
    """Refuse a file that can't be made."""
    if path is None:
        return
    from pytest_mlms.core.files import output_problem

    problem = output_problem(path)
    if problem:
        raise pytest.UsageError(f"{source_of(config, f'mlms_{name}')}: {problem}")


def _check_trace(options: Config, config: pytest.Config) -> None:
    """Refuse functions whose level is not traced.

    An ini file may have functions for the runs that do trace it.
    """
    functions = config.getoption("mlms_trace_functions")
    if functions and "library" not in options.trace:
        levels = ",".join((*options.trace, "library"))
        raise pytest.UsageError(
            f"--mlms-trace-functions: they are of level library; write --mlms-trace={levels}, too"
        )


def _check_uses(options: Config, config: pytest.Config) -> None:
    """Refuse options that were typed and would do nothing.

    An ini file, and its addopts, may have them for the runs that use them.
    """
    typed = typed_flags(config)
    for option in OPTIONS:
        if option.flag not in typed or getattr(options, option.name) == ():
            continue
        if option.needs and not any(getattr(options, name) for name in option.needs):
            needed = " or ".join(map(_meaning, option.needs))
            raise pytest.UsageError(
                f"{option.flag}: it does nothing without {needed}; name that, or leave it out"
            )
        for name in option.not_with:
            if getattr(options, name):
                problem = f"it does nothing in {_meaning(name)}"
                raise pytest.UsageError(f"{option.flag}: {problem}; leave one of them out")
    named = typed_paths(config)
    if "--mlms-model" in typed and named:
        raise pytest.UsageError(
            f"--mlms-model: only {' '.join(named)} is collected; leave one of them out"
        )
    _check_gates(options, typed)


def typed_flags(config: pytest.Config) -> set[str]:
    """Return the options of the command line itself, beside those of ``addopts``."""
    return {os.fspath(word).partition("=")[0] for word in config.invocation_params.args}


def typed_paths(config: pytest.Config) -> list[str]:
    """Return what the command line itself names to collect, beside ``addopts``."""
    if config.args_source is not config.ArgsSource.ARGS:
        return []
    typed = set(map(os.fspath, config.invocation_params.args))
    return [name for name in dict.fromkeys(config.args) if name in typed]


def _meaning(name: str) -> str:
    """Return what makes a field of Config true, as errors name it."""
    meanings = {
        "upgrade": "an upgrade (--mlms-against or --mlms-aa with stacks)",
        "sides": "two hosts (--mlms-stack and --mlms-against with labels)",
    }
    return meanings.get(name, f"--mlms-{name}")


def _check_gates(options: Config, typed: Collection[str]) -> None:
    """Refuse gates by which hosts aren't compared, and two tolerances of one quantity."""
    names = [gate.partition("=")[0] for gate in options.gate]
    if options.sides and "--mlms-gate" in typed:
        from pytest_mlms.core.quantities import upgrade_rules

        known = [name for name, rule in upgrade_rules(None).items() if rule.estimate]
        for name in set(names).difference(known):
            problem = f"two hosts aren't compared by {name}, but by {', '.join(known)}"
            raise pytest.UsageError(f"--mlms-gate: {problem}; name one of these")
    is_tolerance_typed = "--mlms-tolerance" in typed
    if is_tolerance_typed:
        names.append("latency")
    for name in names:
        if names.count(name) > 1:
            others = " or --mlms-tolerance" if is_tolerance_typed and name == "latency" else ""
            raise pytest.UsageError(
                f"--mlms-gate: {name} has two tolerances; leave out one --mlms-gate{others}"
            )
