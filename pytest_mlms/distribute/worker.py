"""The worker's side: says what its host offers and its items need, refuses what nobody can run,
sends files home.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from typing import Any

import pytest

from pytest_mlms.distribute.messages import Handler, Link, is_remote, side_channel
from pytest_mlms.distribute.remote.artifact_transfer import ArtifactClient
from pytest_mlms.distribute.remote.result_transfer import ResultSender
from pytest_mlms.errors import MlmsError
from pytest_mlms.host.capabilities import gather
from pytest_mlms.host.requirements import table_of
from pytest_mlms.session import SESSION, WORKER

__all__ = ["WorkerSide"]

_BEAT = 2.0  # seconds


class _SentinelItem(pytest.Item):
    """Stands behind each item, which xdist starts only when there is something behind it.

    It is never run itself.
    """

    def runtest(self) -> None:
        """Do nothing."""

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return where it is: nowhere."""
        return self.path, None, self.name


class WorkerSide:
    """A plugin of a worker whose controller distributes manifests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._refused: dict[int, tuple[str, str]] = {}
        self._again: dict[int, dict[str, Any]] = {}
        self._interactor: Any = next(
            plugin
            for plugin in config.pluginmanager.get_plugins()
            if hasattr(plugin, "nextitem_index")
        )
        self._ended = threading.Event()
        self._sender: ResultSender | None = None
        handlers: dict[str, Handler] = {
            "refuse": self._refuse,
            "again": self._note_again,
            "interrupt": _interrupt,
        }
        if is_remote(config):
            session = config.stash[SESSION]
            fetcher = ArtifactClient(config.rootpath, session.cache)
            session.bring = fetcher.bring
            self._sender = sender = ResultSender(session.run_folder)
            handlers |= {**fetcher.handlers, **sender.handlers}
            self._link = Link(side_channel(config), handlers, self._ended.set, fetcher.gone)
            fetcher.link = sender.link = self._link
        else:
            self._link = Link(side_channel(config), handlers, self._ended.set)
        threading.Thread(target=self._beat, daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Any:
        """Say what there is before xdist says which items, and add the pause behind them."""
        self._link.send("host", gather(self._config))
        self._link.send("items", *table_of(session.items))
        yield
        session.items.append(_SentinelItem.from_parent(session, name="pause"))
        self._interactor.run_one_test = self._run_one_test

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse what the controller found no host for."""
        if self._refused and self._interactor.item_index in self._refused:
            reason, mode = self._refused[self._interactor.item_index]
            if mode == "error":
                raise MlmsError(reason)
            (pytest.skip if mode == "skip" else pytest.fail)(
                reason, **({} if mode == "skip" else {"pytrace": False})
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Complete a result on its way to the controller."""
        result: dict[str, Any] | None = getattr(report, "mlms", None)
        if result is not None:
            self._complete(result)

    def add(self, result: dict[str, Any]) -> None:
        """Send what an interrupted item had recorded; it has no report."""
        self._complete(result)
        self._link.send("interrupted", result)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Send what the agents have said at their end; stop the beat."""
        yield
        if self._sender:
            self._sender.finish()
        self._ended.set()

    def _complete(self, result: dict[str, Any]) -> None:
        result.update(self._again.get(self._interactor.item_index, {}))
        if self._sender:
            self._sender.send(result)

    def _run_one_test(self) -> None:
        """Run the next item as xdist does; a pause only waits for what comes after it."""
        side = self._interactor
        if side.nextitem_index == len(side.session.items) - 1:
            side.nextitem_index = side.torun.get()
        else:
            type(side).run_one_test(side)

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT) and self._link.send("beat"):
            pass

    def _refuse(self, index: int, reason: str, mode: str) -> None:
        self._refused[index] = reason, mode

    def _note_again(self, index: int, facts: dict[str, Any]) -> None:
        self._again[index] = facts


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def start(config: pytest.Config) -> None:
    """Begin, in a worker whose controller gave it a channel."""
    if side_channel(config) is not None:
        assert config.stash[SESSION].worker
        config.pluginmanager.register(WorkerSide(config), WORKER)
