"""Registration of the plugin that distributes manifests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.distribute import cross_host_plugin
from pytest_mlms.distribute.registration import CONTROLLER, register
from pytest_mlms.session import SESSION


class FakePlugins:
    def __init__(self, blocked: str = "") -> None:
        self.registered: dict[str, object] = {}
        self._blocked = blocked

    def is_blocked(self, name: str) -> bool:
        return name == self._blocked

    def register(self, plugin: object, name: str) -> None:
        self.registered[name] = plugin


def configuration(plugins: FakePlugins, **options: Any) -> Any:
    session = SimpleNamespace(worker=None, config=SimpleNamespace(sides=()))
    return SimpleNamespace(
        stash={SESSION: session},
        pluginmanager=plugins,
        getoption=lambda name, default=None: options.get(name, default),
    )


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> FakePlugins:
    from pytest_mlms.distribute import controller

    monkeypatch.setattr(controller, "Controller", lambda config, session: "controller")
    return FakePlugins()


@pytest.mark.parametrize("dist", ["load", "worksteal", "loadfile"])
def test_the_controller_is_registered_where_workers_share_the_items(
    plugins: FakePlugins, dist: str
) -> None:
    register(configuration(plugins, dist=dist, tx=["popen"]))
    assert plugins.registered == {CONTROLLER: "controller"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dist": "no", "tx": ["popen"]},
        {"dist": "each", "tx": ["popen"]},
        {"dist": "load", "tx": []},
        {"dist": "load", "tx": ["popen"], "collectonly": True},
    ],
)
def test_nothing_is_registered_where_nothing_is_distributed(
    plugins: FakePlugins, options: dict[str, Any]
) -> None:
    register(configuration(plugins, **options))
    assert plugins.registered == {}


def test_two_labels_register_the_comparison_of_hosts(
    plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []

    def register_comparison(config: object, options: object) -> None:
        compared.append(options)

    monkeypatch.setattr(cross_host_plugin, "register_comparison", register_comparison)
    config = configuration(plugins, dist="load", tx=["popen"])
    options = config.stash[SESSION].config
    options.sides = ("gpu=new", "gpu=old")
    register(config)
    assert compared == [options]


def test_p_no_mlms_fleet_leaves_the_items_to_xdist() -> None:
    plugins = FakePlugins(blocked=CONTROLLER)
    register(configuration(plugins, dist="load", tx=["popen"]))
    assert plugins.registered == {}
