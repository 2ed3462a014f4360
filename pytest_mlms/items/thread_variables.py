"""Variables of stacks that set another number of threads than the one that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_mlms.items.warned import warn_at
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.cases import Case
from pytest_mlms.session import FIRST_WORKERS, Session
from pytest_mlms.warning_types import MlmsWarning


def warn_of_thread_variables(
    loaded: LoadedManifest, cases: Sequence[Case], session: Session
) -> None:
    """Warn once of each stack with such a variable, which its framework may never read.

    No error, since a library beside the framework may have threads of its own.
    """
    if session.worker not in FIRST_WORKERS:
        return
    sides = [*cases, *(case.baseline for case in cases if case.against is not None)]
    with_variables = {case.stack.name: case for case in sides if case.stack.env}
    for case in with_variables.values():
        from pytest_mlms.provide.stacks.launch import THREAD_VARIABLES  # heavy, and rarely needed

        count = case.threads
        others = [
            f"{name}={value}"
            for name, value in case.stack.env
            if count and name in THREAD_VARIABLES and value != str(count)
        ]
        if not others:
            continue
        is_of_stack = case.stack.threads is not None and case.stack.place is not None
        place = case.stack.place if is_of_stack else loaded.place("evaluate", "threads")
        assert place is not None
        text = (
            f"'threads: {count}' is asked of the framework, so that {', '.join(others)} of stack "
            f"{case.stack.name} may do nothing; give a stack in stacks.yaml the 'threads', or "
            f"leave one of both out"
        )
        warn_at(str(place.path), place.line, text, MlmsWarning)
