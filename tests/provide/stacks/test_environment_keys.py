"""Keys of environments: one part of what decides their packages varied at a time."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks import installer_settings
from pytest_mlms.provide.stacks.environments import _Request
from pytest_mlms.provide.stacks.interpreters import Interpreter, probe

PYTHON = Interpreter(Path("/usr/bin/python3"), "3.11.7", "CPython", "linux", Path("/usr"), "abi")


class Home:
    """A user's home, a folder of wheels and files that a stack names."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._monkeypatch = monkeypatch
        self.wheels = path / "wheels"
        self.wheels.mkdir()
        for name in ("tiny-1-py3-none-any.whl", "other-1-py3-none-any.whl"):
            (self.wheels / name).write_text("1")
        (path / "constraints.txt").write_text("numpy<2\n")
        (path / "named.txt").write_text("numpy<2\n")
        self.write("project/pyproject.toml", "[project]\n")
        self.write("project/src/code.py", "VALUE = 1\n")
        self.write("project/src/code/__init__.py", "")
        self.write("project/tests/__init__.py", "")
        self.write("further/tiny-2-py3-none-any.whl", "1")
        settings = f"[install]\nconstraint = {path}/named.txt\nfind-links =\n  {path}/further\n"
        self.write(".config/pip/pip.conf", settings)
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "XDG_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(path))
        self.stack = Stack(
            "mine",
            "any",
            requirements=(
                "six",
                f"tiny @ {(self.wheels / 'tiny-1-py3-none-any.whl').as_uri()}",
                f"project @ {(path / 'project').as_uri()}",
            ),
            options=(f"--constraint={path / 'constraints.txt'}", f"--find-links={self.wheels}"),
        )
        self.python = PYTHON

    @property
    def key(self) -> str:
        return _Request(self.stack, self.python, self.path).target.name

    def set(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def change(self, **fields: object) -> None:
        self.stack = replace(self.stack, **fields)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(tmp_path, monkeypatch)


def write(name: str, text: str) -> Callable[[Home], object]:
    return lambda home: home.write(name, text)


@pytest.mark.parametrize(
    "change",
    [
        lambda home: home.change(requirements=("six",)),
        lambda home: home.change(installer="uv"),
        lambda home: home.change(options=()),
        lambda home: setattr(home, "python", PYTHON._replace(version="3.11.8")),
        lambda home: setattr(home, "python", PYTHON._replace(abi="cpython-313t")),
        lambda home: setattr(home, "python", PYTHON._replace(implementation="PyPy")),
        lambda home: setattr(home, "python", PYTHON._replace(platform="linux-aarch64")),
        write("constraints.txt", "numpy<1\n"),
        write("wheels/tiny-1-py3-none-any.whl", "built again"),
        write("wheels/other-1-py3-none-any.whl", "built again"),
        write("wheels/third-1-py3-none-any.whl", "1"),
        write(".config/pip/pip.conf", "[global]\nindex-url = https://mirror.invalid/simple\n"),
        lambda home: home.set("PIP_INDEX_URL", "https://mirror.invalid/simple"),
        lambda home: home.set("PIP_EXTRA_INDEX_URL", "https://mirror.invalid/simple"),
        lambda home: home.set("PIP_CONSTRAINT", str(home.path / "constraints.txt")),
        lambda home: home.set("PIP_PRE", "1"),
        write("project/src/code.py", "VALUE = 2\n"),
        write("project/CMakeLists.txt", "project(other)\n"),
        write("project/src/code/data/table.json", "{}"),
        write("project/src/dist/__init__.py", "VALUE = 2\n"),
        write("named.txt", "numpy<1\n"),
        write("further/tiny-2-py3-none-any.whl", "built again"),
    ],
)
def test_each_part_that_decides_the_packages_is_in_the_key(
    home: Home, change: Callable[[Home], object]
) -> None:
    before = home.key
    assert home.key == before
    change(home)
    assert home.key != before


@pytest.mark.parametrize(
    "change",
    [
        lambda home: home.change(name="other"),
        lambda home: home.change(threads=4),
        lambda home: home.change(env=(("A", "1"),)),
        lambda home: home.set("PIP_CACHE_DIR", "/elsewhere"),
        lambda home: home.set("UV_INDEX_URL", "https://mirror.invalid/simple"),
        lambda home: setattr(home, "python", PYTHON._replace(prefix=Path("/opt"))),
        lambda home: home.set("PIP_INDEX_PASSWORD", "another"),
        lambda home: home.write("project/build/lib/code.py", "VALUE = 1\n"),
        lambda home: home.write("project/project.egg-info/PKG-INFO", "Name: project\n"),
        lambda home: home.write("project/src/__pycache__/code.pyc", "compiled"),
        lambda home: home.write("project/mlms-results/latest/results.jsonl", "{}"),
        lambda home: home.write("project/.git/index", "refreshed"),
        lambda home: home.write("project/tests/found.json", "{}"),
        lambda home: (home.path / "project/src/loop.py").symlink_to("loop.py"),
        lambda home: os.mkfifo(home.path / "project/src/pipe.py"),
        lambda home: os.mkfifo(home.path / ".config/pip/other.conf"),
        lambda home: os.utime(home.path / "project/src/code.py", (1, 1)),
        lambda home: (home.wheels / "lock").symlink_to("nowhere"),
        lambda home: (home.path / ".pip").mkdir(),
    ],
)
def test_what_decides_no_package_is_not_in_the_key(
    home: Home, change: Callable[[Home], object]
) -> None:
    before = home.key
    change(home)
    assert home.key == before


def test_the_password_of_an_index_is_not_in_the_key(home: Home) -> None:
    keys = set()
    for password in ("old", "new"):
        home.set("PIP_INDEX_URL", f"https://ci:{password}@mirror.invalid/simple")
        keys.add(home.key)
    assert len(keys) == 1


def test_settings_of_the_constraint_of_a_variable_are_its_content(home: Home) -> None:
    home.set("PIP_CONSTRAINT", str(home.path / "constraints.txt"))
    home.change(options=())
    before = home.key
    (home.path / "constraints.txt").write_text("numpy<1\n")
    assert home.key != before


def test_an_interpreter_tells_what_compiled_packages_are_made_for() -> None:
    assert (sysconfig.get_config_var("SOABI") or "") in probe(sys.executable).abi


def test_the_content_of_a_constraint_beside_the_current_folder_is_in_the_key(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.path)
    home.set("PIP_CONSTRAINT", "constraints.txt")
    home.change(options=())
    before = home.key
    home.write("constraints.txt", "numpy<1\n")
    assert home.key != before


def test_uv_s_settings_of_a_project_are_in_the_key_and_the_rest_of_its_file_is_not(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.path)
    home.change(installer="uv")
    keys = []
    for version, bound in (("1", "numpy<2"), ("2", "numpy<2"), ("2", "numpy<1")):
        table = f"[tool.uv]\nconstraint-dependencies = ['{bound}']\n\n[tool.mypy]\nstrict = true\n"
        home.write("pyproject.toml", f"[project]\nversion = '{version}'\n\n{table}")
        keys.append(home.key)
    assert keys[0] == keys[1] != keys[2]


def test_settings_that_can_not_be_read_are_none(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = home.key
    read_text = Path.read_text

    def refuse(path: Path, *words: str, **options: str) -> str:
        if path.name == "pip.conf":
            raise PermissionError(path)
        return read_text(path, *words, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert home.key != before  # of what another user's file would have said


@pytest.mark.parametrize("requirement", ["{} ; python_version > '3'", "project@ {}"])
def test_a_project_is_in_the_key_however_its_requirement_is_written(
    home: Home, requirement: str
) -> None:
    address = requirement.format((home.path / "project").as_uri())
    home.change(requirements=(address if "@" in address else f"project @ {address}",))
    before = home.key
    home.write("project/src/code.py", "VALUE = 2\n")
    assert home.key != before


def test_a_folder_that_has_the_name_of_a_package_is_not_in_the_key(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.path)
    home.set("PIP_NO_BINARY", "numpy")
    home.write(
        ".config/pip/pip.conf", "[install]\nno-binary = numpy\nfind-links = there\n[wheel]\n"
    )
    home.write("numpy/notes", "1")
    home.write("wheel/notes", "1")
    before = home.key
    home.write("numpy/more", "1")
    home.write("wheel/more", "1")
    assert home.key == before


@pytest.mark.parametrize(
    "written", ["[[index]]\nurl = '{}'", "index-url: https://a\nfind-links: {}"]
)
def test_local_indexes_of_settings_are_in_the_key(
    home: Home, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    flat = home.path / "flat"
    flat.mkdir()
    monkeypatch.chdir(flat)
    home.change(installer="uv" if "url =" in written else "pip", options=())
    name = ".config/uv/uv.toml" if "url =" in written else ".config/pip/pip.conf"
    home.write(name, written.format("../flat"))
    before = home.key
    home.write("flat/tiny-3-py3-none-any.whl", "1")
    assert home.key != before


def test_files_that_did_not_change_are_read_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = home.key

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} is read again")

    monkeypatch.setattr(installer_settings, "digest_of", refuse)
    assert home.key == before
