"""The launch of a case's agent: its environment is made if need be, its GPU chosen, and held."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mlms_predictors._run.gpus import list_gpus, visible_gpus
from mlms_predictors._run.servers import TOKEN_VARIABLE

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.core.waits import Waiting
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.capabilities import selected_alone, uuid_of
from pytest_mlms.provide.host.locks import exclusive
from pytest_mlms.provide.stacks.launch import prepare

if TYPE_CHECKING:
    import pytest

    from pytest_mlms.provide.stacks.installers import Show

_VISIBLE = "CUDA_VISIBLE_DEVICES"
LOCK_SECONDS = 3600.0
"""The longest wait for a device."""


def hold_device(
    case: Case, config: pytest.Config | None, waiting: Waiting, patience: float = LOCK_SECONDS
) -> AbstractContextManager[None]:
    """Return a context in which nobody else on this host measures on the case's device.

    ``config`` is as of ``launch_case``, and ``patience`` is how long to wait, in seconds.
    """
    uuid = uuid_of(case.device, config)
    return exclusive(case.device, patience, cores=case.stack.cores, uuid=uuid, waiting=waiting)


def launch_case(
    case: Case,
    files: Mapping[str, Path],
    predictor: Path,
    cache: Path,
    *,
    passthrough: Iterable[str] = (),
    config: pytest.Config | None = None,
    show: Show = lambda step: None,
    hosts: Collection[str] = (),
) -> Launch:
    """Return how to start an agent of a case's stack; its environment is made if need be.

    ``files`` are the model's, and ``passthrough`` are patterns of variables that it gets, too.
    ``config`` knows the devices of hooks, None those of the driver alone. ``hosts`` are those that
    an endpoint may be on beside this one. Raises as ``prepare`` does, and StackError where the
    agent would see other GPUs than those that are locked, or ask a host that nobody named.
    """
    stack = replace(case.stack, env_passthrough=(*case.stack.env_passthrough, *passthrough))
    is_on_gpu = case.device.startswith("cuda")
    if stack.endpoint:
        _check_endpoint(stack, hosts)
    launch = prepare(
        stack,
        cache,
        threads=case.threads,
        mounts=[predictor.parent, *files.values()],
        gpu=uuid_of(case.device, config) if stack.container and is_on_gpu else "",
        show=show,
    )
    launch = replace(launch, server=stack.server)
    if stack.endpoint and TOKEN_VARIABLE in os.environ:
        token = os.environ[TOKEN_VARIABLE]
        launch = replace(launch, env={**launch.env, TOKEN_VARIABLE: token})
    if is_on_gpu and not launch.device:
        _check_gpus(case.stack, launch)
        uuid = selected_alone(case.device, config)
        if uuid:
            return replace(launch, env={**launch.env, _VISIBLE: uuid}, device="cuda:0")
    return launch


def _check_endpoint(stack: Stack, hosts: Collection[str]) -> None:
    """Raise StackError for an endpoint elsewhere that wasn't named, or would get an open token."""
    parts = urlsplit(stack.endpoint)
    host = parts.hostname or ""
    if host == "localhost" or _is_loopback(host):
        return
    place = f"{stack.place}: " if stack.place else ""
    if host not in hosts:
        problem = f"stack {stack.name} would send the inputs to {host}"
        raise StackError(f"{place}{problem}; allow it by pytest --mlms-endpoint={host}")
    if parts.scheme == "http" and os.environ.get(TOKEN_VARIABLE):
        problem = f"{TOKEN_VARIABLE} would be sent to {host} in the open"
        raise StackError(f"{place}{problem}; write https:// into the endpoint, or unset it")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_gpus(stack: Stack, launch: Launch) -> None:
    """Raise StackError where agents would see other GPUs than those that pytest locks."""
    seen, own = (variables.get(_VISIBLE) for variables in (launch.env, os.environ))
    if seen == own:
        return
    gpus = list_gpus()
    if not gpus or visible_gpus(gpus, seen) != visible_gpus(gpus, own):
        place = f"{stack.place}: " if stack.place else ""
        problem = f"stack {stack.name} has {_VISIBLE}={seen}, and pytest locks other GPUs"
        raise StackError(f"{place}{problem}; set it for pytest, or evaluate on another cuda:N")
