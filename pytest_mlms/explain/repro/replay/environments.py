"""An environment for a side, with its exact packages, and the variables that agents get."""

import contextlib
import fnmatch
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .interpreters import Interpreter
from .record import BundleSide
from .task import CannotRun

_LAST_LINES = 12
_PART = 1 << 20  # bytes
_PIP_WITH_PYTHON = (22, 3)  # the first with --python
_OLDEST_FOR_PIP = (3, 9)  # that today's pip installs for
_USER = re.compile(r"(?<=://)[^\s/?#]+@")
_DEFAULT_INDEX = "https://pypi.org/simple"

_COMPLETE = "complete"
"""The name of the file that a complete environment has, in which its content is."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TVM_NUM_THREADS",
)
"""Variables that libraries read when they are loaded."""

NOT_OF_AGENTS = re.compile(
    r""".*(KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE|SIGNATURE).* | TF_(VAR|CLI)_.*
    | (.*_)? N?THREADS? (_NUM|_LIMIT|_COUNT)? | NPROC
    | (OMP|MKL|KMP)_DYNAMIC(_MODE)? | \w+_NUM_TEAMS | KMP_HW_SUBSET | BLIS_[IJ][CR]_NT""",
    re.VERBOSE,
)
"""Variables that may be secrets, and those that set how many threads there are."""

_OF_AGENTS = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_*", "TZ"),
    *("LD_*", "DYLD_*", "MALLOC_*", "TCMALLOC_*", "JEMALLOC_*", "GLIBC_TUNABLES"),
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "TRT_*", "ROCR_*", "HIP_*", "ZE_*", "GPU_*"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "DNNL_*", "ONEDNN_*", "ATEN_*", "NPY_*"),
    *("TF_*", "XLA_*", "JAX_*", "ORT_*", "OPENVINO_*", "OV_*", "PYTORCH_*", "TORCH*", "MXNET_*"),
)
"""Patterns of the variables that agents get; a framework has no use for your others."""


class Pip(NamedTuple):
    """How packages are installed into an environment.

    ``command`` is pip of the Python that runs the replay, empty where each environment has to have
    a pip of its own.
    """

    command: Tuple[str, ...]
    source: str


def find_pip() -> Pip:
    """Return pip of this Python, and which index it is set to."""
    command = (sys.executable, "-I", "-m", "pip")
    version = _version_of(_output_of([*command, "--version"]))
    index = _index_of(_output_of([*command, "config", "list"]))
    if version >= _PIP_WITH_PYTHON:
        return Pip(command, index)
    return Pip((), index)


def _output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


def _version_of(text: str) -> Tuple[int, ...]:
    found = re.match(r"pip (\d+)\.(\d+)", text)
    return tuple(int(number) for number in found.groups()) if found else (0, 0)


def _index_of(settings: str) -> str:
    """Return the index of pip's settings, without a user and a password."""
    found = _DEFAULT_INDEX
    for line in settings.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".index-url"):
            found = value.strip("'\"") or found
    return hide_user(found)


def hide_user(address: str) -> str:
    """Return an address without a user and a password."""
    return _USER.sub("***@", address)


def python_of(folder: str) -> str:
    """Return the Python of the environment in a folder."""
    return os.path.join(folder, "bin", "python")


def install_arguments(side: BundleSide, wheels: Optional[str]) -> List[str]:
    """Return what pip is asked for: the exact packages, and nothing that they would ask for."""
    links = ["--find-links=" + wheels] if wheels else []
    return ["--no-deps", *side.options, *links, *side.requirements]


def make_environment(
    side: BundleSide, interpreter: Interpreter, pip: Pip, folder: str, wheels: Optional[str]
) -> None:
    """Make the environment of a side in a folder, unless it is there: another bundle's is replaced.

    Raises CannotRun with the last lines of what failed; nothing is left behind then.
    """
    mark = os.path.join(folder, _COMPLETE)
    content = _content_of(side, interpreter, wheels)
    if os.path.exists(mark):
        with open(mark) as file:
            if file.read() == content:
                return
    shutil.rmtree(folder, ignore_errors=True)
    release = tuple(int(number) for number in interpreter.minor.split("."))
    shared = pip.command if release >= _OLDEST_FOR_PIP else ()
    try:
        venv = [
            interpreter.path,
            "-I",
            "-m",
            "venv",
            *(["--without-pip"] if shared else []),
            folder,
        ]
        _run(venv, "making the environment")
        python = python_of(folder)
        command = [*shared, "--python", python] if shared else [python, "-I", "-m", "pip"]
        command += ["install", "--disable-pip-version-check", "--no-input"]
        _run(
            [*command, *install_arguments(side, wheels)],
            "installing the packages of %s" % side.name,
        )
        with open(mark, "w") as file:
            file.write(content)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _content_of(side: BundleSide, interpreter: Interpreter, wheels: Optional[str]) -> str:
    """Return the content of an environment: its Python, what pip is asked for, and the wheels."""
    found = {}
    for name in sorted(os.listdir(wheels)) if wheels else []:
        with open(os.path.join(str(wheels), name), "rb") as file:
            digest = hashlib.sha256()
            for part in iter(lambda: file.read(_PART), b""):
                digest.update(part)
        found[name] = digest.hexdigest()
    return json.dumps([list(map(str, interpreter)), install_arguments(side, None), found])


def _run(command: Sequence[str], doing: str) -> None:
    """Run a command whose processes end with it. Raises CannotRun with its last lines."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
        env=_without_python(os.environ),
        start_new_session=True,
    )
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        lines = [line for line in output.splitlines() if line.strip()][-_LAST_LINES:]
        shown = "".join("\n  %s" % hide_user(line) for line in lines)
        problem = "%s ended with status %d:%s" % (doing, process.returncode, shown)
        raise CannotRun(problem)


def _without_python(variables: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith("PYTHON")}


def agent_variables(
    base: Mapping[str, str],
    threads: Optional[int] = None,
    own: Sequence[Tuple[str, str]] = (),
) -> Dict[str, str]:
    """Return the variables of an agent: those that a process needs, its threads, and its own.

    Those that choose libraries and arithmetic are yours, as a measurement's are, but for its own.
    """
    found = {}
    for name, value in base.items():
        if NOT_OF_AGENTS.fullmatch(name) or _USER.search(value):
            continue
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _OF_AGENTS):
            found[name] = value
    found["PYTHONNOUSERSITE"] = "1"
    if threads:
        found.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    found.update(own)
    return found
