"""Stacks of lines that a stranger may have written: the parts that may be made again.

Of such a line these are taken: versions of Python, names and versions of packages, and variables
that only choose threads, devices and arithmetic. Where a package comes from, a program, a folder
and any other variable are taken only where a stack of the operator declares the very same, or where
the operator names the run as trusted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.recorded import RecordedLaunch
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import redact, redact_all
from pytest_mlms.provide.stacks.environments import environments
from pytest_mlms.provide.stacks.exact_packages import ExactPackage
from pytest_mlms.provide.stacks.recorded import declaration_of

TRUST_OPTION = "--trust-run"

_VARIABLES = frozenset(
    (
        *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_NESTED", "OMP_SCHEDULE"),
        *("OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_MAX_ACTIVE_LEVELS"),
        *("OMP_STACKSIZE", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT"),
        *("KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_HW_SUBSET"),
        *("MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
        *("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "GOTO_NUM_THREADS", "BLIS_NUM_THREADS"),
        *("NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "TVM_NUM_THREADS"),
        *("MALLOC_ARENA_MAX", "TOKENIZERS_PARALLELISM"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING"),
        *("CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUBLAS_WORKSPACE_CONFIG"),
        *("NVIDIA_TF32_OVERRIDE", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"),
        *("ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
        *("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"),
        *("DNNL_DEFAULT_FPMATH_MODE", "ONEDNN_DEFAULT_FPMATH_MODE"),
        *("TF_ENABLE_ONEDNN_OPTS", "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC"),
        *("TF_CUDNN_USE_AUTOTUNE", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_CPP_MIN_LOG_LEVEL"),
        *("TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT"),
        *("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"),
        *("JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION"),
        *("MXNET_SAFE_ACCUMULATION", "MXNET_CUDNN_AUTOTUNE_DEFAULT"),
    )
)
"""Variables that can neither load code nor name a file."""

_FILES = re.compile(r"cache|cxx|delegate|dir|dump|home|path|file|lib|plugin", re.IGNORECASE)
"""A word in the names of predictors' options whose values are files, folders or programs."""

_VALUE = re.compile(r"[\w .,:;=+{}()*-]{0,400}", re.ASCII)
_PYTHON = re.compile(r"\d+\.\d+(\.\d+)?([a-z]+\d+)?\+?", re.ASCII)
_IMAGE = re.compile(r"(sha256:)?[0-9a-f]{64}")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_WORD = re.compile(r"[\w-]{1,64}", re.ASCII)
"""A text that is no path; an option of such a value can't name a file elsewhere."""

_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".bz2", ".xz", ".lzma", ".tgz", ".tbz", ".txz", ".tlz")

_NEEDED = (
    *("agent", "container", "libraries", "env", "env_passthrough", "options", "variant"),
    *("serve", "endpoint"),
)
"""Keys that change what is measured beside exact packages."""

_SOURCES = ("--index-url", "--extra-index-url", "--find-links", "--no-build-isolation")
"""pip's options that decide which code is installed; with exact versions the others don't."""


@dataclass(frozen=True)
class Trust:
    """The sources that an operator trusts beside versions.

    ``stacks`` are those that they declare. With ``everything`` all of a line is trusted.
    """

    stacks: Collection[Stack] = ()
    everything: bool = False

    @classmethod
    def of_run(cls, run: Path, trusted: Collection[str], stacks: Iterable[Stack]) -> Trust:
        """Return what is trusted of the run in a folder, by the names that --trust-run has."""
        names = {run.name, run.resolve().name}
        return cls(tuple(stacks), everything=not names.isdisjoint(trusted))

    def program(self, launch: RecordedLaunch, cache: Path) -> Path | None:
        """Return the interpreter of a recorded side; None where it is gone, or not the operator's.

        Theirs are this one, those of their stacks, and those of the environments in their cache.
        """
        if launch.program is None:
            return None
        known = [Path(sys.executable), *(made.interpreter for made in environments(cache))]
        for stack in self.stacks:
            if stack.interpreter and not stack.container:
                known.append(Path(stack.interpreter))
        found = launch.program.among(known)
        if self.everything:
            found = launch.program.trusted()
        return found if found and found.is_file() else None

    def takes_address(self, package: ExactPackage) -> bool:
        """Return whether a package may come from its address: one that a stack declares, too."""
        wanted = {package.address, str(package.file or "")} - {""}
        addresses: set[str] = set()
        for stack in self.stacks:
            for text in stack.requirements:
                addresses |= {text, text.partition("@ ")[2].partition(" ;")[0]}
        return self.everything or bool(wanted & addresses)

    def takes_image(self, image: str) -> bool:
        """Return whether a container may be of an image: one with its whole id is never pulled."""
        return self.everything or _IMAGE.fullmatch(image) is not None

    def own(self, key: str, part: Any) -> Any:
        """Return this part of a key as a stack of the operator has it; None where none has it.

        Results have addresses without their passwords.
        """
        for stack in self.stacks:
            for declared in _parts(declaration_of(stack).get(key)):
                if part in (declared, redact_all(declared)):
                    return declared
        return None


EVERYTHING = Trust(everything=True)
"""Of runs that a command has just made, and of what an operator keeps: their lock file."""


def trusted_keys(declared: Mapping[str, Any], trust: Trust, stack: str) -> dict[str, Any]:
    """Return the keys that declare a recorded stack, as far as a stack may be declared by them.

    What exact packages make needless is left out where it may not be used. Raises StackError where
    something else may not.
    """
    if trust.everything:
        return dict(declared)
    found: dict[str, Any] = {}
    for key, value in declared.items():
        kept = [own for part in _parts(value) for own in _taken(key, part, trust, stack)]
        if isinstance(value, Mapping):
            found[key] = dict(kept)
        elif isinstance(value, (list, tuple)):
            found[key] = kept
        elif kept:
            found[key] = kept[0]
    if len(found.get("requirements", ())) != len(declared.get("requirements", ())):
        del found["requirements"]
    return found


def _taken(key: str, part: Any, trust: Trust, stack: str) -> list[Any]:
    """Return a part of a key as it may be used; nothing where it is needless and may not."""
    own = trust.own(key, part)
    if own is not None:
        return [own]
    if _is_harmless(key, part):
        return [part]
    if key in _NEEDED or str(part).startswith(_SOURCES):
        raise _refused(stack, key, part)
    return []


def check_python(version: str, stack: str) -> None:
    """Raise StackError where a recorded version of Python is none, such as a path."""
    if not _PYTHON.fullmatch(version):
        raise StackError(f"stack {stack}: {version!r} is no version of Python; measure it again")


def is_release(package: ExactPackage) -> bool:
    """Return whether a package is of a version that an index can have."""
    try:
        Version(package.version)
    except InvalidVersion:
        return False
    return True


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]


def _is_harmless(key: str, part: Any) -> bool:
    """Return whether a part of a key chooses neither code nor files, whoever wrote it."""
    if key == "env":
        name, value = part
        return name in _VARIABLES and _VALUE.fullmatch(value) is not None
    if key == "options":
        name, value = part
        if isinstance(value, str):
            return not _FILES.search(name) and _WORD.fullmatch(value) is not None
        return isinstance(value, (bool, int, float))
    if key == "variant":
        return isinstance(part, str) and _NAME.fullmatch(part) is not None
    if key == "requirements":
        return _is_plain(part)
    if key == "python":
        return _PYTHON.fullmatch(part) is not None
    known = {"env_passthrough": _VARIABLES, "interpreter": ("current",), "installer": ("pip", "uv")}
    return part in known.get(key, ())


def harmless_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that choose neither code nor files, and mean the same on any host."""
    return {name: value for name, value in env.items() if _is_harmless("env", (name, value))}


def _is_plain(text: str) -> bool:
    """Return whether a requirement is a name, with versions at most; pip takes a.zip for a file."""
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        return False
    return wanted.url is None and not wanted.name.endswith(_ARCHIVES)


def _refused(stack: str, key: str, part: Any) -> StackError:
    shown = part if isinstance(part, str) else part[0]
    problem = f"stack {stack}: results set {key}: {redact(shown)}, which no stack here has"
    return StackError(f"{problem}; declare it in stacks.yaml, or trust the run by {TRUST_OPTION}")
