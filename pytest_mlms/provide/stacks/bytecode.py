"""Interpreters whose packages are not compiled, as uv leaves them: agents start later there."""

from __future__ import annotations

import json
import shlex
import subprocess

from pytest_mlms.core.records import Launch

_SECONDS = 60  # for an interpreter to answer
_QUESTION = """
import glob, importlib.util, json, os, sysconfig
found = {}
for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
    for file in glob.glob(os.path.join(folder, "*", "__init__.py")):
        if not os.path.exists(importlib.util.cache_from_source(file)):
            found.setdefault(folder, []).append(os.path.basename(os.path.dirname(file)))
print(json.dumps(found))
"""


def advice_on_bytecode(launch: Launch) -> str:
    """Return what to do where packages of an interpreter have no bytecode, "" elsewhere.

    Its agents write none: they would change what is measured for the next one.
    """
    if launch.is_agent:
        return ""
    try:
        done = subprocess.run(
            [launch.command[0], "-I", "-c", _QUESTION],
            capture_output=True,
            text=True,
            env=dict(launch.env),
            timeout=_SECONDS,
            check=False,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""  # what opens an agent there says what is wrong
    if not found:
        return ""
    names = sorted(name for packages in found.values() for name in packages)
    compile_all = shlex.join([launch.command[0], "-I", "-m", "compileall", "-q", *sorted(found)])
    return (
        f"{launch.command[0]} has no bytecode of {len(names)} packages, such as {names[0]}: its "
        f"agents start later and take more memory than others of the same software; {compile_all}"
    )
