"""Modules that are started as programs of their own, and never found in the current folder.

``python -m NAME`` looks into the current folder first, where a file of another's may have the name
of a module. ``-I`` would leave out PYTHONPATH too, and Python 3.10 has no ``-P``.
"""

from __future__ import annotations

import os
import sys

_CODE = """\
import sys
sys.path[:] = [path for path in sys.path if path] + {more!r}
import runpy
runpy.run_module({name!r}, run_name='__main__', alter_sys=True)
"""


def module_command(name: str, *, with_folder: bool = False) -> list[str]:
    """Return the command that runs a module by this interpreter; its arguments follow.

    ``with_folder`` has modules of the current folder found, too, but last, as tests import them.
    """
    more = [""] if with_folder else []
    return [sys.executable, "-c", _CODE.format(name=name, more=more)]


def without_own_settings() -> dict[str, str]:
    """Return our environment without the options that a person's own sessions of pytest have.

    They could push a session of ours, write it to a history, or make other items.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
