"""Models that are kept open: their answers, their turns, and the end of those that take too long."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pytest_mlms.api import open_model
from pytest_mlms.predict.plain import plain_prediction
from pytest_mlms.predict.warm import Refusal, WarmLimits, WarmModels, frame_of
from pytest_mlms.provide.host.locks import exclusive
from tests.support.project import DIGITS
from tests.support.served_models import write_faulty_model, write_manifests
from tests.support.waiting import wait_until

PICTURES = np.load(DIGITS / "digits_test.npz")["image"]
Work = Callable[[WarmModels], Awaitable[Any]]


@pytest.fixture
def manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return write_manifests(tmp_path / "m")


def served(manifests: Path, work: Work, **limits: Any) -> Any:
    """Return what ``work`` makes with models of a folder; none of their processes or files stays."""

    async def run() -> Any:
        models = WarmModels(manifests, may_create=False, limits=WarmLimits(**limits))
        try:
            return await work(models)
        finally:
            await models.close()

    before = set(psutil.Process().children(recursive=True))
    found = asyncio.run(run())
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list((manifests.parent / "temporary").iterdir())
    return found


async def ask(models: WarmModels, manifest: Path, picture: int = 0) -> Any:
    """Return the line of a prediction for a picture."""
    parts, arrays = frame_of(PICTURES[picture])
    fields = {"type": "predict", "given": parts, "name": "", "latency": False}
    return (await models.ask(manifest, "", fields, arrays)).fields["line"]


def test_many_that_ask_at_once_get_what_an_open_model_says(manifests: Path) -> None:
    manifest = manifests / "digits.yaml"

    async def work(models: WarmModels) -> Any:
        return await asyncio.gather(*(ask(models, manifest, number) for number in range(40)))

    found = served(manifests, work)
    with open_model(manifest) as model:
        for number, line in enumerate(found):
            prediction = model.predict(PICTURES[number])
            assert line == plain_prediction("", model, prediction, None)


def test_the_model_that_nobody_asked_for_longest_makes_room(manifests: Path) -> None:
    names = [write_faulty_model(manifests, f"m{answer}", answer=answer) for answer in range(3)]

    async def work(models: WarmModels) -> Any:
        rounds = await asyncio.gather(*(ask(models, name) for name in names * 3))
        children = psutil.Process().children()
        return [line["answers"]["logits"][0]["index"] for line in rounds], len(children)

    answers, children = served(manifests, work, models=2)
    assert answers == [0, 1, 2] * 3
    assert children <= 2


def test_a_request_that_takes_too_long_ends_its_process_and_no_other_request(
    manifests: Path,
) -> None:
    slow = write_faulty_model(manifests, "slow", seconds=3600)

    async def work(models: WarmModels) -> Any:
        return await asyncio.gather(
            ask(models, slow), ask(models, manifests / "digits.yaml"), return_exceptions=True
        )

    refusal, line = served(manifests, work, call=1.0, patience=1.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, str(refusal)) == (
        "slow",
        "it took more than 2 s, and was ended; give the model less",
    )
    assert line["answers"]["logits"]


def test_nobody_is_lost_whose_model_dies_beneath_another(manifests: Path) -> None:
    manifest = manifests / "digits.yaml"

    async def work(models: WarmModels) -> Any:
        await ask(models, manifest)
        asked = [asyncio.ensure_future(ask(models, manifest)) for _ in range(8)]
        await asyncio.sleep(0)
        (child,) = psutil.Process().children()
        child.kill()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = served(manifests, work)
    refusals = [one for one in found if isinstance(one, Refusal)]
    assert len(refusals) <= 1, "only the one that had its turn"
    assert all(one.kind == "failed" for one in refusals)


def test_one_too_many_is_told_when_to_come_back(manifests: Path) -> None:
    manifest = manifests / "digits.yaml"

    async def work(models: WarmModels) -> Any:
        asked = (ask(models, manifest) for _ in range(10))
        return await asyncio.gather(*asked, return_exceptions=True)

    found = served(manifests, work, waiting=4)
    refusals = [one for one in found if isinstance(one, Refusal)]
    assert [one.kind for one in refusals] == ["crowded"] * 6
    assert all(one.again >= 1 for one in refusals)


def test_who_goes_away_leaves_the_place_to_others(manifests: Path) -> None:
    manifest = manifests / "digits.yaml"

    async def work(models: WarmModels) -> Any:
        gone = [asyncio.ensure_future(ask(models, manifest)) for _ in range(4)]
        await asyncio.sleep(0.01)
        for one in gone:
            one.cancel()
        await asyncio.wait(gone)
        asked = (ask(models, manifest) for _ in range(4))
        return await asyncio.gather(*asked)

    assert len(served(manifests, work, waiting=4)) == 4


def test_a_device_that_another_process_holds_is_told(manifests: Path, tmp_path: Path) -> None:
    manifest = manifests / "digits.yaml"

    async def work(models: WarmModels) -> Any:
        await ask(models, manifest)
        with exclusive("cpu", 1, tmp_path / "locks"):
            asked = (ask(models, manifest) for _ in range(20))
            return await asyncio.gather(*asked, return_exceptions=True)

    found = served(manifests, work, patience=0.2)
    assert {one.kind for one in found} == {"busy"}
    assert all("device cpu is in use by process" in str(one) for one in found)


@pytest.mark.parametrize(
    ("fault", "text"), [("killed", "SIGKILL"), ("garbage", "frame"), ("exit", "SystemExit")]
)
def test_an_agent_that_dies_is_an_error_and_the_next_call_has_a_new_one(
    manifests: Path, fault: str, text: str
) -> None:
    manifest = write_faulty_model(manifests, "faulty", at="predict", fault=fault)

    async def work(models: WarmModels) -> Any:
        return [
            (await asyncio.gather(ask(models, manifest), return_exceptions=True))[0]
            for _ in range(2)
        ]

    for refusal in served(manifests, work):
        assert (refusal.kind, text in str(refusal)) == ("failed", True), str(refusal)
        assert str(manifests.parent) not in str(refusal)


def test_a_manifest_that_changes_is_another_model_and_one_that_is_gone_an_error(
    manifests: Path,
) -> None:
    manifest = write_faulty_model(manifests, "changing", answer=1)

    async def work(models: WarmModels) -> Any:
        before = await ask(models, manifest)
        write_faulty_model(manifests, "changing", answer=2)
        after = await ask(models, manifest)
        manifest.unlink()
        with pytest.raises(Refusal, match=r"^changing\.yaml: the manifest's file is gone"):
            await ask(models, manifest)
        return [line["answers"]["logits"][0]["index"] for line in (before, after)]

    assert served(manifests, work) == [1, 2]


def test_the_portal_s_end_by_force_is_that_of_its_models(manifests: Path) -> None:
    manifest = manifests / "digits.yaml"

    async def work(models: WarmModels) -> Any:
        await ask(models, manifest)
        (child,) = psutil.Process().children()
        family = [child, *child.children(recursive=True)]
        (model,) = models._models.values()
        assert model.process.stdin is not None
        model.process.stdin.transport.abort()  # as the kernel does
        await asyncio.to_thread(wait_until, lambda: not any(map(is_alive, family)))

    served(manifests, work)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_who_waits_when_all_are_closed_opens_no_model_again(manifests: Path) -> None:
    slow = write_faulty_model(manifests, "slow", seconds=0.5)

    async def work(models: WarmModels) -> Any:
        await ask(models, slow)
        waiting = [asyncio.ensure_future(ask(models, slow)) for _ in range(3)]
        await asyncio.sleep(0.2)
        await models.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    cut_off, *others = served(manifests, work)
    assert isinstance(cut_off, asyncio.CancelledError)
    assert [str(one) for one in others] == ["the models are being closed"] * 2


def test_a_process_that_starts_while_all_are_closed_ends_with_them(manifests: Path) -> None:
    async def work(models: WarmModels) -> Any:
        asked = asyncio.ensure_future(ask(models, manifests / "digits.yaml"))
        while not models._door.locked():
            await asyncio.sleep(0)
        await models.close()
        assert not psutil.Process().children()
        return await asyncio.gather(asked, return_exceptions=True)

    (cut_off,) = served(manifests, work)
    assert isinstance(cut_off, (Refusal, asyncio.CancelledError))


def test_a_model_that_makes_room_ends_though_nobody_waits_for_the_next(manifests: Path) -> None:
    names = [write_faulty_model(manifests, f"m{answer}", answer=answer) for answer in range(2)]

    async def work(models: WarmModels) -> Any:
        await ask(models, names[0])
        asked = asyncio.ensure_future(ask(models, names[1]))
        while not models._ends:
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])
        await models.close()
        assert not psutil.Process().children()

    served(manifests, work, models=1)
