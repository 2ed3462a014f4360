"""Worker of a distributed run: the plugin of each process that xdist starts.

It announces what its host offers and what its items need, reports the items that no host can run,
and sends the files of results to the controller.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.distribute.messages import (
    Heartbeat,
    Interrupt,
    InterruptedResult,
    ItemRefusal,
    ItemRetry,
    WorkerAnnouncement,
)
from pytest_mlms.distribute.remote.artifact_transfer import ArtifactClient
from pytest_mlms.distribute.remote.result_transfer import ResultSender
from pytest_mlms.distribute.side_channel import Handler, SideChannel, channel_of, is_remote
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.provide.host.matching import table_of
from pytest_mlms.session import SESSION, WORKER

_HEARTBEAT_SECONDS = 2.0


def register_worker(config: pytest.Config) -> None:
    """Register the plugin in a worker to which the controller gave a side channel."""
    execnet_channel = channel_of(config)
    if execnet_channel is None:
        return
    channel = SideChannel(execnet_channel)
    sender = None
    artifacts = None
    if is_remote(config):
        session = config.stash[SESSION]
        sender = ResultSender(session.run_folder, channel)
        artifacts = ArtifactClient(config.rootpath, session.cache, channel)
        session.bring = artifacts.bring
    side = WorkerSide(config, channel, sender)
    side.listen(artifacts)
    config.pluginmanager.register(side, WORKER)


class SentinelItem(pytest.Item):
    """An item that follows each other one and is never run.

    xdist starts an item only when it knows the next one.
    """

    def runtest(self) -> None:
        """Do nothing."""

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return a location without a line."""
        return self.path, None, self.name


class WorkerSide:
    """A plugin of a worker whose controller distributes manifests.

    ``sender`` sends files to a controller on another host, and is None on the controller's host.
    """

    def __init__(
        self, config: pytest.Config, channel: SideChannel, sender: ResultSender | None
    ) -> None:
        self._config = config
        self._channel = channel
        self._sender = sender
        self._refusals: dict[int, ItemRefusal] = {}
        self._retries: dict[int, ItemRetry] = {}
        self._interactor = _find_interactor(config)
        self._ended = threading.Event()
        self._last_sent: Mapping[str, Any] | None = None

    def listen(self, artifacts: ArtifactClient | None) -> None:
        """Begin to receive messages, and to send heartbeats."""
        handlers: dict[type, Handler] = {
            ItemRefusal: self._note_refusal,
            ItemRetry: self._note_retry,
            Interrupt: _interrupt,
        }
        on_close = [self._ended.set]
        if self._sender:
            handlers.update(self._sender.handlers)
        if artifacts:
            handlers.update(artifacts.handlers)
            on_close.append(artifacts.close)
        self._channel.listen(handlers, on_close)
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Announce host and items before xdist sends the ids, then add the sentinel item."""
        table = table_of(session.items, identity_of)
        offer = self._config.stash[SESSION].capabilities(self._config)
        self._channel.send(WorkerAnnouncement(offer, table.needs, table.rows))
        result = yield
        session.items.append(SentinelItem.from_parent(session, name="sentinel"))
        self._interactor.run_one_test = self._run_one_test
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Report an item that the controller found no host for."""
        if not self._refusals:
            return
        refusal = self._refusals.get(self._interactor.item_index)
        if refusal is None:
            return
        if refusal.outcome == "error":
            raise MlmsError(refusal.reason)
        if refusal.outcome == "fail":
            pytest.fail(refusal.reason, pytrace=False)
        pytest.skip(refusal.reason)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Complete a result on its way to the controller, and send its files first."""
        result: dict[str, Any] | None = getattr(report, "mlms", None)
        if result is not None:
            self._complete(result)

    def has(self, result: Mapping[str, Any]) -> bool:
        """Return whether the result that was sent last is this one."""
        return result is self._last_sent

    def add(self, result: dict[str, Any]) -> None:
        """Send the result of an interrupted item, which has no report."""
        self._complete(result)
        self._channel.send(InterruptedResult(result))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Send the logs that the agents have completed at their end, and stop the heartbeats."""
        yield
        if self._sender:
            self._sender.finish()
        self._ended.set()

    def _complete(self, result: dict[str, Any]) -> None:
        retry = self._retries.get(self._interactor.item_index)
        if retry:
            result.update(attempt=retry.attempt, earlier=retry.earlier)
        if self._sender:
            self._sender.send(result)
        self._last_sent = result

    def _run_one_test(self) -> None:
        """Run the next item as xdist does, but only wait where that is the sentinel item."""
        interactor = self._interactor
        sentinel = len(interactor.session.items) - 1
        if interactor.nextitem_index == sentinel:
            interactor.nextitem_index = interactor.torun.get()
        else:
            type(interactor).run_one_test(interactor)

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(_HEARTBEAT_SECONDS):
            if not self._channel.send(Heartbeat()):
                break

    def _note_refusal(self, message: ItemRefusal) -> None:
        self._refusals[message.item] = message

    def _note_retry(self, message: ItemRetry) -> None:
        self._retries[message.item] = message


def _find_interactor(config: pytest.Config) -> Any:
    """Return xdist's WorkerInteractor, a plugin without a name."""
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "nextitem_index"):
            return plugin
    raise LookupError("xdist has no WorkerInteractor in this process")


def _interrupt(message: Interrupt) -> None:
    os.kill(os.getpid(), signal.SIGINT)
