"""Programs in C and Java that use a model by the library: those of docs/library.md, and one that misuses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

import pytest_mlms
from pytest_mlms.api import DatasetError, open_model
from pytest_mlms.cli.main import main
from pytest_mlms.core.statistics import theil_sen
from tests.support.lacking import lack
from tests.support.project import HANG_GUARD, ROOT, copy_digits
from tests.support.waiting import wait_until

PAGE = (ROOT / "docs" / "library.md").read_text()
(IN_C,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
(IN_JAVA,) = re.findall(r"```java\n(.*?)```", PAGE, re.DOTALL)
FOR_C, FOR_JAVA = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
MISUSE = ROOT / "tests" / "support" / "library_user.c"
JNA = Path("/usr/share/java/jna.jar")
INSTALL = "bash ci/java installs it"
PIXELS = (np.arange(64) % 17).astype(np.uint8).reshape(8, 8)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, its header, and the program that misuses it."""
    if shutil.which("cc") is None:
        lack("java", f"no C compiler; {INSTALL}")
    folder = tmp_path_factory.mktemp("library") / "build"
    assert main(["library", "build", "--output", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {"libmlms.so", "mlms.h"}
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{folder}", str(MISUSE)]
    subprocess.run([*command, "-ldl", "-o", str(folder / "user")], check=True)
    return folder


@pytest.fixture(scope="module")
def folder(build: Path) -> Path:
    """A folder with the digits model, ``seven.png`` and its ``pixels``."""
    copy_digits(build.parent / "manifests").rename(build.parent / "manifests" / "Ziffern ü.yaml")
    Image.fromarray(PIXELS).save(build.parent / "seven.png")
    (build.parent / "pixels").write_bytes(PIXELS.tobytes())
    return build.parent


def environment(folder: Path) -> dict[str, str]:
    """Return variables of a program that was made for another Python, in the locale C."""
    return {
        "HOME": os.environ.get("HOME", "/"),
        "PATH": os.environ["PATH"],
        "MLMS_LOCKS": str(folder / "locks"),
        "MLMS_CACHE": str(folder / "cache"),
        "PYTHONHOME": "/nowhere",
        "PYTHONPATH": str(folder / "strange"),
        "LC_ALL": "C",
    }


def start(folder: Path, scenario: str) -> subprocess.Popen[str]:
    manifest = folder / "manifests" / "Ziffern ü.yaml"
    build = folder / "build"
    return subprocess.Popen(
        [build / "user", build / "libmlms.so", scenario, manifest],
        cwd="/",
        env=environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def run(folder: Path, scenario: str) -> list[str]:
    """Return the lines that the program prints; nobody else prints any."""
    with start(folder, scenario) as program:
        output, errors = program.communicate(timeout=HANG_GUARD)
    assert (program.returncode, errors) == (0, "")
    return output.splitlines()


def run_example(folder: Path, commands: str) -> list[str]:
    """Run the commands of the page; return the lines of the last one."""
    shown = commands.replace("manifests/digits/digits.yaml", "'manifests/Ziffern ü.yaml'")
    done = subprocess.run(
        ["sh", "-ec", shown],
        cwd=folder,
        env={**environment(folder), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def expected(folder: Path) -> tuple[dict[str, Any], bytes]:
    """What ``mlms predict --json`` prints for the picture without its time, and its logits."""
    words = [sys.executable, "-m", "pytest_mlms", "predict", "manifests/Ziffern ü.yaml"]
    words += ["seven.png", "--json", "--save", "saved.npz"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return {**json.loads(done.stdout), "latency": None}, np.load(folder / "saved.npz")[
        "logits"
    ].tobytes()


def numbers(lines: list[str]) -> bytes:
    return np.array(lines, np.float32).tobytes()


def test_the_program_in_c_gets_the_answer_of_python_bit_for_bit(
    folder: Path, expected: tuple[Mapping[str, Any], bytes]
) -> None:
    (folder / "digit.c").write_text(IN_C)
    document, *logits = run_example(folder, FOR_C)
    assert json.loads(document) == {**expected[0], "input": "uint8 [8, 8]"}
    assert numbers(logits) == expected[1]


def test_the_program_in_java_gets_the_answer_of_python_bit_for_bit(
    folder: Path, expected: tuple[Mapping[str, Any], bytes]
) -> None:
    if shutil.which("javac") is None:
        lack("java", f"no JDK; {INSTALL}")
    if not JNA.exists():
        lack("java", f"no {JNA}; {INSTALL}")
    (folder / "Digit.java").write_text(IN_JAVA)
    document, *logits = run_example(folder, FOR_JAVA)
    assert json.loads(document) == expected[0]
    assert numbers(logits) == expected[1]


def test_the_line_of_cpp_on_the_page_compiles(build: Path) -> None:
    (line,) = re.findall(r"`(std::unique_ptr<.*;)`", PAGE)
    program = f'#include <memory>\n#include "mlms.h"\nvoid use(mlms_model model, mlms_value input) {{ {line} }}'
    command = [
        "c++",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-ignored-attributes",
        f"-I{build}",
        "-xc++",
        "-fsyntax-only",
        "-",
    ]
    if shutil.which("c++") is None:
        pytest.skip("no compiler of C++")
    subprocess.run(command, input=program, text=True, check=True)


REFUSED = {
    "no type": "an input has the type None; write the type of an array, such as float32, or text",
    "unknown type": "an input has the type 'float31'",
    "objects": "an input has the type 'object'",
    "no shape": "an input has 2 axes, and their lengths are at NULL; give",
    "negative": "an input of uint8 has the shape [-1, 8]; give lengths from 0, and at most 1,024 MiB",
    "large": "an input of uint8 has the shape [1099511627776, 1099511627776]; give",
    "many axes": "an input has 33 axes, and their lengths are in place; give the lengths of at most 32",
    "no elements": "an input of uint8 [8, 8] is at NULL; give its elements",
    "no path": "an input is a path at NULL; give one",
    "lost path": "nowhere.png can't be read: No such file or directory; name a file that is there",
    "strange path": "can't be read: No such file or directory",
    "strange text": "a text is not UTF-8 (byte 0); write it so",
    "words": "'seven' is no numbers; give a file as a Path",
    "no picture": "",
    "twice": "'image' comes twice; name each once",
    "unnamed": "an input of several has no name; name each once",
    "other name": "no input is called 'picture'; give a value for each of image",
    "nothing": "mlms_predict: there are 1 inputs, at NULL; give each once",
    "minus one": "mlms_predict: there are 18446744073709551615 inputs, too many; give each once",
    "none": "'image' is missing; give a value for each of image",
    "NULL manifest": "mlms_open: the manifest is NULL; give its path",
    "lost manifest": "lost.yaml",
    "lost stack": "lost",
    "lost device": "cuda:77",
    "close twice": "is open: it was closed, or none; open it again",
    "closed": "is open: it was closed, or none; open it again",
    "no model": "no model -7 is open",
    "free a stranger": "mlms_free: this is no answer, or was freed before; free each once",
    "free twice": "mlms_free: this is no answer, or was freed before; free each once",
}
"""What the program gives -> a part of the error."""

ALLOWED = {"close", "close none", "free none", "free", "close before free", "free after close"}


def test_what_is_wrong_is_an_error_with_a_text_and_the_program_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # as the program, which names files from there
    lines = run(folder, "refuse")
    said = dict(line.split(": ", 1) for line in lines if re.match(r"[\w ]+: ", line))
    assert {name for name, text in said.items() if text == "no error"} == ALLOWED
    for name, part in REFUSED.items():
        assert part in said[name], name
    assert "still 1 arrays" in lines
    assert not [line for line in lines if "Traceback" in line or "report it" in line]
    with open_model(folder / "manifests" / "Ziffern ü.yaml") as model:
        for name, wrong in (("wrong shape", PIXELS.reshape(64)), ("a number", np.float64(0))):
            with pytest.raises(DatasetError) as caught:
                model.predict(wrong)
            assert said[name] == str(caught.value).splitlines()[0]


def test_a_thousand_answers_leave_nothing_and_those_that_are_kept_would_be_seen(
    folder: Path,
) -> None:
    def growth(scenario: str) -> float:
        """Return bytes a call; an allocator's own steps, such as 2 MB once, are no growth."""
        calls, resident = np.loadtxt(run(folder, scenario)).T
        return theil_sen(calls, resident)

    assert growth("many") < 300 < 1_000 < growth("kept")


def test_threads_share_models_and_have_errors_of_their_own(folder: Path) -> None:
    lines = run(folder, "threads")
    assert lines == ["as the others"] * 4 + ["freed by another thread: no error", "close: no error"]


def test_threads_may_begin_at_once(folder: Path) -> None:
    assert run(folder, "race") == ["began: no error", "close: no error"] * 4


def processes_of(program: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(program.pid).children(recursive=True)


def ready(program: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until a program has a model; return the processes of that."""
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return processes_of(program)


def test_an_interrupt_ends_the_program_and_the_process_of_the_model(folder: Path) -> None:
    with start(folder, "interrupted") as program:
        agents = ready(program)
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=HANG_GUARD) == ("", "")
    assert program.returncode == -signal.SIGINT
    assert agents
    wait_until(lambda: not any(agent.is_running() for agent in agents))


def test_a_handler_of_the_program_is_called_and_stays(folder: Path) -> None:
    with start(folder, "handled") as program:
        ready(program)
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=HANG_GUARD) == ("handled\n", "")
    assert program.returncode == 0


def test_a_process_that_was_forked_is_told_so_and_its_parent_goes_on(folder: Path) -> None:
    child, closing, parent = run(folder, "forked")
    assert "child: libmlms: this process was forked from one that uses the library" in child
    assert "forked" in closing
    assert parent == "parent: no error"


def test_a_process_that_was_forked_before_has_a_library_of_its_own(folder: Path) -> None:
    found = run(folder, "forked first")
    assert found == ["child: no error", "child closes: no error", "parent: no error"]


def test_a_model_whose_process_died_is_an_error_and_begins_anew(folder: Path) -> None:
    with start(folder, "lost agent") as program:
        for agent in ready(program):
            agent.kill()
        output, errors = program.communicate("\n", timeout=HANG_GUARD)
    assert (program.returncode, errors) == (0, "")
    assert "without its process: the agent (process " in output
    assert output.endswith("with a new one: no error\n")


def environment_of_a_wheel(folder: Path) -> Path:
    """Make an environment with a wheel of ours; its other packages are this one's."""
    from tests.test_packaging import build_wheel

    wheel = build_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv" / "lib").glob("*/site-packages")
    (packages / "others.pth").write_text(str(Path(np.__file__).parent.parent))
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    return python


@pytest.mark.slow
def test_an_installed_wheel_builds_it_and_an_environment_that_changes_is_told(
    folder: Path, tmp_path: Path
) -> None:
    python = environment_of_a_wheel(tmp_path)
    shutil.copytree(folder / "manifests", tmp_path / "manifests")
    (tmp_path / "build").mkdir()
    shutil.copy(folder / "build" / "user", tmp_path / "build")
    subprocess.run([python.with_name("mlms"), "library", "build"], cwd=tmp_path, check=True)
    assert run(tmp_path, "open") == [f"{pytest_mlms.__version__}: no error"]
    (package,) = (tmp_path / "venv" / "lib").glob("*/site-packages/pytest_mlms")
    text = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(text.replace(pytest_mlms.__version__, "99.0"))
    (found,) = run(tmp_path, "open")
    assert "has 99.0; run 'mlms library build' again" in found
    shutil.rmtree(package)
    (found,) = run(tmp_path, "open")
    assert f"libmlms: {python} can't import pytest_mlms: No module named" in found
    shutil.rmtree(tmp_path / "venv")
    (found,) = run(tmp_path, "open")
    assert f"{python} can't import pytest_mlms" in found
