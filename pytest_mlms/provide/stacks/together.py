"""Several stacks made side by side, each by a thread, with one line on how far they are."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from pytest_mlms.core.errors import MlmsError, StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.installers import Show, end_running
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.shown_steps import shown_step

_LOOK_SECONDS = 0.2  # between two looks at whether there was an interruption
_GRACE_SECONDS = 5  # for installers that were interrupted


def make_together(stacks: Sequence[Stack], cache: Path, show: Show) -> None:
    """Make the environments of all stacks that have requirements, where these are several.

    An error is left to ``prepare`` of the stack, which raises it again at once. An interruption
    ends all installers.
    """
    made = list({stack.name: stack for stack in stacks if stack.requirements}.values())
    if len(made) < 2:
        return
    progress = _Progress(len(made), show)
    with ThreadPoolExecutor(len(made), "mlms-stack") as pool:
        futures = [pool.submit(_make, stack, cache, progress) for stack in made]
        try:
            while wait(futures, _LOOK_SECONDS).not_done:
                pass  # an interruption that another thread gets is noticed here
        except BaseException:
            progress.stop()
            how = signal.SIGINT
            while not all(future.done() for future in futures):
                end_running(how)
                wait(futures, _GRACE_SECONDS)
                how = signal.SIGKILL
            raise


def _make(stack: Stack, cache: Path, progress: _Progress) -> None:
    with contextlib.suppress(MlmsError):
        prepare(stack, cache, show=partial(progress.step, stack.name))
    progress.done()


class _Progress:
    """One line for the steps of several stacks: how many are done, and the last step of any."""

    def __init__(self, count: int, show: Show) -> None:
        self._count = count
        self._show = show
        self._done = 0
        self._is_over = False
        self._lock = threading.Lock()

    def step(self, name: str, step: str) -> None:
        """Show the step of a stack. Raises StackError once all of them are to stop."""
        if self._is_over:
            raise StackError("interrupted")
        text = shown_step(step)
        if text:
            with self._lock:
                self._show(f"{self._done} of {self._count} stacks made; {name}: {text}")

    def done(self) -> None:
        """Count a stack, and show the end of the last one."""
        with self._lock:
            self._done += 1
            if self._done == self._count:
                self._show("")

    def stop(self) -> None:
        """Show no further step."""
        self._is_over = True
