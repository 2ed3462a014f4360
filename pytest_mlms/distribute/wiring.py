"""Whether a run distributes manifests, and if so, the plugin of this process for it."""

from __future__ import annotations

import pytest

from pytest_mlms.session import SESSION

__all__ = ["CONTROLLER", "wire"]

CONTROLLER = "mlms-fleet"
"""The plugin's name; ``-p no:mlms-fleet`` leaves the items to xdist's own scheduler."""


def wire(config: pytest.Config) -> None:
    """Register the controller's or the worker's side where manifests are distributed.

    Otherwise do nothing.
    """
    session = config.stash[SESSION]
    if session.worker:
        from pytest_mlms.distribute import worker

        worker.start(config)
    elif _distributes(config) and not config.pluginmanager.is_blocked(CONTROLLER):
        from pytest_mlms.distribute.controller import Controller

        config.pluginmanager.register(Controller(config, session), CONTROLLER)
        if session.config.sides:
            from pytest_mlms.upgrade.cross_host import Sides

            resume = config.pluginmanager.getplugin("mlms-resume")
            config.pluginmanager.register(
                Sides(session.config, resume.lines.values() if resume else ()), "mlms-sides"
            )


def _distributes(config: pytest.Config) -> bool:
    """Whether xdist starts workers that share the items.

    With --dist each, every worker runs all of them.
    """
    option = config.getoption
    return (
        option("dist", "no") not in ("no", "each")
        and bool(option("tx", None))
        and not option("collectonly")
    )
