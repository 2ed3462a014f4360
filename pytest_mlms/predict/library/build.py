"""Compiles libmlms.so by cffi's embedding, for the environment that this runs in."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import replacing, write_atomically

_MODULE = "_libmlms"
_DECLARED = """
static void tell(const char *text);
extern "Python" mlms_model python_open(const char *, const char *, const char *);
extern "Python" const mlms_prediction *python_predict(mlms_model, const mlms_value *, size_t);
extern "Python" int python_free(const mlms_prediction *);
extern "Python" int python_close(mlms_model);
"""
_START = f"""
from {_MODULE} import ffi, lib
from pytest_mlms.predict.library.embedded import define
define(ffi, lib, {pytest_mlms.__version__!r})
"""
_SHOWN = 10  # lines of a compiler


def build_library(folder: Path) -> tuple[Path, Path]:
    """Compile the library into a folder, and write its header there; return both.

    Raises ImportError for a missing cffi, and MlmsError for what else is missing.
    """
    if not sys.platform.startswith("linux"):
        raise MlmsError(f"the library is for Linux, and this is {sys.platform}; build it there")
    library = folder / "libmlms.so"
    header = folder / "mlms.h"
    text = (files("pytest_mlms.predict.library") / header.name).read_text()
    compiler = _compiler()
    include, linked = _python_headers(), _python_library()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch, replacing(library) as temporary:
            (Path(scratch) / header.name).write_text(text)
            source = _write_source(Path(scratch), text)
            command = [*compiler, "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared"]
            command += [f"-I{scratch}", f"-I{include}", str(source), "-o", str(temporary)]
            command += [str(linked), "-ldl", f"-Wl,-soname,{library.name}", "-Wl,-z,nodelete"]
            _compile([*command, f"-Wl,-rpath,{linked.parent}"])
        write_atomically(header, text)
    except OSError as error:
        problem = f"{folder} can't be written: {error.strerror or error}"
        raise MlmsError(f"{problem}; name another folder by --output") from None
    return library, header


def _compiler() -> list[str]:
    command = os.environ.get("CC", "").split() or ["cc"]
    if shutil.which(command[0]) is None:
        where = "Debian and Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc"
        raise MlmsError(f"the library needs a C compiler, and there is no {command[0]}; {where}")
    return command


def _python_headers() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        raise MlmsError(f"the library needs {folder}/Python.h, which isn't there; {_advice()}")
    return folder


def _python_library() -> Path:
    """Return the file of Python as a shared library, of this interpreter's version."""
    name = f"libpython{sysconfig.get_config_var('LDVERSION')}.so"
    places = list(_places())
    for folder in places:
        if (folder / name).is_file():
            return folder / name
    looked = ", ".join(map(str, places))
    raise MlmsError(f"the library needs {name}, which is not in {looked}; {_advice()}")


def _places() -> Iterator[Path]:
    yield Path(sys.base_prefix) / "lib"
    folder = sysconfig.get_config_var("LIBDIR")
    if folder:
        yield Path(folder) / (sysconfig.get_config_var("MULTIARCH") or "")
        yield Path(folder)


def _advice() -> str:
    """Return how to get Python's headers and its library."""
    minor = "{}.{}".format(*sys.version_info)
    if sys.base_prefix == "/usr":
        debian = f"Debian and Ubuntu: apt install python{minor}-dev"
        return f"{debian}; Fedora: dnf install python3-devel"
    release = "{}.{}.{}".format(*sys.version_info)
    rebuilt = f"PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force {release}"
    return f"build this Python ({sys.base_prefix}) with --enable-shared; by pyenv: {rebuilt}"


def _write_source(folder: Path, header: str) -> Path:
    """Write the library in C, as cffi makes it of the header, library.c and embedded.py."""
    import cffi

    declared = re.sub(r'^(#.*|extern "C" \{|\})$', "", header, flags=re.MULTILINE)
    own = (files("pytest_mlms.predict.library") / "library.c").read_text()
    constants = {
        "MLMS_PYTHON": _quoted(sys.executable),
        "MLMS_USER_SITE": str(int(bool(site.ENABLE_USER_SITE))),
        "MLMS_VERSION": _quoted(pytest_mlms.__version__),
    }
    defined = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    ffi = cffi.FFI()
    ffi.embedding_api("")
    ffi.cdef(declared + _DECLARED)
    ffi.set_source(_MODULE, defined + own)
    ffi.embedding_init_code(_START)
    path = folder / "libmlms.c"
    with contextlib.redirect_stdout(io.StringIO()):  # which says that it writes a file
        ffi.emit_c_code(str(path))
    return path


def _quoted(text: str) -> str:
    """Return a text as a string of C, its bytes as octal numbers."""
    return '"' + "".join(f"\\{byte:03o}" for byte in os.fsencode(text)) + '"'


def _compile(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        last = "\n".join(f"    {line}" for line in done.stderr.splitlines()[-_SHOWN:])
        advice = "mend what it says, or name another compiler in CC"
        raise MlmsError(f"{command[0]} can't compile the library; {advice}. It says:\n{last}")
