"""Registration of the plugin that distributes manifests: the controller's or the worker's."""

from __future__ import annotations

import pytest

from pytest_mlms.session import SESSION

CONTROLLER = "mlms-fleet"
"""The plugin's name; ``-p no:mlms-fleet`` leaves the items to xdist's own scheduler."""


def register(config: pytest.Config) -> None:
    """Register the plugin for this process, if the run distributes manifests."""
    session = config.stash[SESSION]
    if session.worker:
        from pytest_mlms.distribute.worker import register_worker

        register_worker(config)
    elif _distributes(config) and not config.pluginmanager.is_blocked(CONTROLLER):
        from pytest_mlms.distribute.controller import Controller

        config.pluginmanager.register(Controller(config, session), CONTROLLER)
        if session.config.sides:
            from pytest_mlms.distribute.cross_host_plugin import register_comparison

            register_comparison(config, session.config)


def _distributes(config: pytest.Config) -> bool:
    """Return whether xdist starts workers that share the items.

    With --dist each, every worker runs all of them.
    """
    if config.getoption("collectonly") or not config.getoption("tx", None):
        return False
    return config.getoption("dist", "no") not in ("no", "each")
