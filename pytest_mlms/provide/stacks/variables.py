"""Environment variables that agents and installers get; the others stay with pytest.

An agent runs a framework and a model of other people, an installer the build scripts of packages.
CI has secrets in its environment that neither needs, under names that nobody can list: so what is
passed on is listed instead. ``env_passthrough`` of a stack and --mlms-env-passthrough add to it.
docs/stacks.md has the groups.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

# A process: where programs, the user's files and caches are, and how text and time are written.
_PROCESS = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR"),
    *("LANG", "LANGUAGE", "LC_*", "TZ"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
)
# The loader and the allocator: libraries of a GPU or of conda are found by them, and benchmarks
# are run with another malloc.
_LOADER = (
    *("LD_*", "DYLD_*", "NIX_LD*", "CONDA_PREFIX"),
    *("GLIBC_TUNABLES", "MALLOC_*", "TCMALLOC_*", "JEMALLOC_*"),
)
# Drivers and libraries of accelerators: which devices are visible, where kernels are cached.
_ACCELERATORS = (
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "CUPTI_*", "NVIDIA_*", "NCCL_*", "TRT_*", "TENSORRT_*"),
    *("ROCM_*", "ROCR_*", "HIP_*", "HSA_*", "MIOPEN_*", "GPU_*"),
    *("ONEAPI_*", "ZE_*", "SYCL_*"),
)
# Libraries of mathematics and threads: instruction sets, places, waiting. Thread counts are ours.
_MATHEMATICS = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "MKLROOT", "OPENBLAS_*", "GOTO_*", "BLIS_*", "NVPL_*"),
    *("ATEN_*", "DNNL_*", "ONEDNN_*", "TBB_*", "NUMEXPR_*", "VECLIB_*", "NPY_*"),
    *("OMPI_*", "OPAL_*", "I_MPI_*"),
)
# Frameworks, by their own prefixes; of Hugging Face what says where files are.
_FRAMEWORKS = (
    *("TF_*", "TFLITE_*", "XLA_*", "JAX_*", "KERAS_*", "ORT_*", "ONNX*", "OPENVINO_*", "OV_*"),
    *("PYTORCH_*", "TORCH*", "TRITON_*", "MXNET_*", "DMLC_*", "CAFFE*", "CNTK_*", "OPENCV_*"),
    *("TVM_*", "GLOG_*", "GRPC_VERBOSITY", "PROTOCOL_BUFFERS_*"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    "TOKENIZERS_PARALLELISM",
)
_WITHOUT_EFFECT = (
    "CONDA_PREFIX",
    "NIX_LD*",
    "HF_*",
    "GLOG_*",
    "*_CACHE_*",
    "*_CACHEDIR",
    "*_LOG_*",
)
"""Variables of these that say where files are and what is printed."""

# Compilers: torch.compile and Triton call them, and so do packages that are built.
_COMPILERS = ("CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
# Those by which coverage measures subprocesses. Agents read none of this plugin's, of which some
# have passwords.
_COVERAGE = (
    *("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_RCFILE", "COVERAGE_FILE"),
    *("COVERAGE_CORE", "COV_CORE_SOURCE", "COV_CORE_CONFIG", "COV_CORE_DATAFILE"),
    *("COV_CORE_BRANCH", "COV_CORE_CONTEXT"),
)

_AGENT = (
    *_PROCESS,
    *_LOADER,
    *_ACCELERATORS,
    *_MATHEMATICS,
    *_FRAMEWORKS,
    *_COMPILERS,
    *_COVERAGE,
)

# Installers: their own settings and the way to the network, among them an index and a proxy with
# their passwords.
_OF_INSTALLERS = (
    *("PIP_*", "UV_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
# Certificates; git for requirements from repositories, without settings that are in variables, as
# they are where tokens are put; flags for builds.
_INSTALLER = (
    *_PROCESS,
    *_LOADER,
    *_COMPILERS,
    *("PYENV_*", "CUDA_HOME", "CUDA_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"),
    *("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY", "GIT_SSL_VERSION"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG"),
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_TERMINAL_PROMPT"),
    *("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "CMAKE_*", "PKG_CONFIG*"),
    *("CARGO_HOME", "RUSTUP_*", "RUSTFLAGS", "MACOSX_DEPLOYMENT_TARGET", "SOURCE_DATE_EPOCH"),
)

VARIABLE_PATTERN = r"^[A-Za-z0-9_*?]+$"
"""The form of a pattern of names, as a regular expression."""

_SECRET = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE|SIGNATURE|(^|_)(API)?KEYS?(_|$)"
)
"""Names that even a prefix of the list must not let through, such as NVIDIA_API_KEY."""

_HOST = re.compile(r"://(?=([^/]*))")
"""The place of an address that has its host, or its user."""

_PASSWORD = re.compile(r":\D")  # behind a user; a port has digits

_OF_OTHERS = ("TF_VAR_*", "TF_CLI_*")
"""Terraform's variables, which hold its secrets and have TensorFlow's prefix."""

_WORD = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]{3,}\b")


def agent_variables(base: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of ``base`` that an agent may get; ``more`` are further patterns."""
    return {**_listed(base, _AGENT), **passed_through(base, more)}


def chosen_by_caller(
    env: Mapping[str, str], own: Iterable[str], more: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables of an agent by which its caller changes what it measures.

    They choose libraries, threads, devices and arithmetic. Those that match a user's patterns
    ``more`` may be secrets, and have no value. What the stack has by its ``own`` is left out.
    """
    known = passed_through(env, (*_LOADER, *_ACCELERATORS, *_MATHEMATICS, *_FRAMEWORKS))
    found = {**dict.fromkeys(passed_through(env, more), "***"), **known}
    left_out = {*own, *passed_through(found, _WITHOUT_EFFECT)}
    return {
        name: "***" if is_secret(name, value) else value
        for name, value in sorted(found.items())
        if name not in left_out
    }


def installer_variables(base: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of ``base`` that an installer may get."""
    own = passed_through(base, _OF_INSTALLERS)  # with passwords of indexes
    return {**_listed(base, _INSTALLER), **own, **passed_through(base, more)}


def passed_through(base: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    """Return the variables whose names match one of a user's patterns, secrets too."""
    wanted = tuple(patterns)
    return {name: value for name, value in base.items() if _matches(name, wanted)}


def is_secret_name(name: str) -> bool:
    """Return whether a variable's name looks like a secret's, such as NVIDIA_API_KEY."""
    return _SECRET.search(name.upper()) is not None


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a secret: by its name, or by an address in its value."""
    return is_secret_name(name) or any(map(_has_user, value.split()))


def _has_user(word: str) -> bool:
    """Return whether an address has a user, who may be a token, or a password with a slash."""
    last = word.rfind("@")
    if last < 0:
        return False
    for found in _HOST.finditer(word):
        start, end = found.span(1)
        password = _PASSWORD.search(word, start, end + 1)
        if start <= word.find("@", start, end) or (password and password.end() <= last):
            return True
    return False


def advice_on_missing(text: str, env: Mapping[str, str]) -> str:
    """Return what to do where an agent's error names a variable that it was not given; else ""."""
    for name in dict.fromkeys(_WORD.findall(text)):
        if name in os.environ and name not in env:
            return (
                f"{name} is set here, and agents do not get it: pass it on by "
                f"'env_passthrough: [{name}]' in its stack, or --mlms-env-passthrough={name}"
            )
    return ""


def _listed(base: Mapping[str, str], patterns: tuple[str, ...]) -> dict[str, str]:
    """Return the variables on a list of ours, without what looks like a secret."""
    found = passed_through(base, patterns)
    for name, value in tuple(found.items()):
        if is_secret(name, value) or _matches(name, _OF_OTHERS):
            del found[name]
    return found


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
