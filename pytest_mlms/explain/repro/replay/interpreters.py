"""The Python that a side asks for, on this machine."""

import glob
import os
import re
import shutil
import subprocess
import sys
from typing import Iterator, List, NamedTuple, Optional

from .task import CannotRun

_SECONDS = 60
_QUESTION = """
import sys
sys.path[:] = [path for path in sys.path if path]  # not what is in the current folder
import platform, sysconfig
is_free_threaded = sysconfig.get_config_var("Py_GIL_DISABLED")
print(platform.python_version(), platform.python_implementation() + "t" * bool(is_free_threaded))
"""


class Interpreter(NamedTuple):
    """A Python: its path and its version, such as 3.11.7."""

    path: str
    version: str

    @property
    def minor(self) -> str:
        """The version without its patch, such as 3.11."""
        return _minor(self.version)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def find_interpreter(version: str, asked: Optional[str] = None) -> Interpreter:
    """Return a Python of a version, or at least of the same minor one.

    ``asked`` is another version, or a path, that is to be used instead. Raises CannotRun, which
    says which Python is missing.
    """
    if asked and (os.sep in asked or shutil.which(asked)):
        found = _probe(asked)
        if found is None:
            raise CannotRun("%s is no Python that runs; name another with --python" % asked)
        return found
    wanted = asked or version
    nearest = None
    for path in _candidates(wanted):
        found = _probe(path)
        if found is None:
            continue
        if (found.version + ".").startswith(wanted + "."):
            return found
        if not asked and found.minor == _minor(wanted):
            nearest = nearest or found
    if nearest is not None:
        return nearest
    advice = "install it, or choose another with --python VERSION or --python PATH"
    raise CannotRun("there is no Python %s here; %s" % (_minor(wanted), advice))


def _probe(path: str) -> Optional[Interpreter]:
    found = shutil.which(path)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, "-E", "-s", "-B", "-c", _QUESTION],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    if done.returncode or len(words) != 2 or words[1] != "CPython":
        return None
    return Interpreter(found, words[0])


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    for name in ("python" + _minor(version), "python3", "python"):
        for folder in os.get_exec_path():
            yield os.path.join(folder, name)
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for pattern in (version, _minor(version) + ".*"):
        for folder in _newest_first(os.path.join(root, "versions", pattern)):
            yield os.path.join(folder, "bin", "python")
    uv = os.path.expanduser("~/.local/share/uv/python")
    for folder in _newest_first(os.path.join(uv, "cpython-" + _minor(version) + ".*")):
        yield os.path.join(folder, "bin", "python")


def _newest_first(pattern: str) -> List[str]:
    """Return the folders of versions: 3.9.18 is newer than 3.9.9."""

    def numbers(folder: str) -> List[int]:
        return [int(number) for number in re.findall("[0-9]+", os.path.basename(folder))]

    return sorted(glob.glob(pattern), key=numbers, reverse=True)
