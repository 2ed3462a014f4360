"""The sides of a bundle as the gate opens them: agents of both stacks with the bundle's model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.decide.upgrade.agents import AgentPair, open_pair
from pytest_mlms.decide.upgrade.crash import Exits, crash_or
from pytest_mlms.decide.upgrade.rounds import SIDES, Outputs, SideName
from pytest_mlms.explain.repro.bundle import Bundle, BundleSide
from pytest_mlms.explain.repro.replay.record import NAME
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Input, Manifest, Model
from pytest_mlms.measure.agent.opening import PredictorSpec
from pytest_mlms.measure.agent.signature import element_type_of
from pytest_mlms.provide.cases import Case

_TIMEOUT = 600.0  # seconds for an answer of an agent


def batch_of(inputs: Mapping[str, Array]) -> int:
    """Return the size of the first axis of the first input that has axes; 1 without one."""
    for array in inputs.values():
        if array.ndim:
            return len(array)
    return 1


def stack_of(bundle: Bundle, side: BundleSide) -> Stack:
    """Return the stack of a side: its exact packages, and nothing that they would ask for.

    A side without a version of Python, which no zip has, is the one that runs this.
    """
    if not side.python:
        return Stack(side.name, side.framework, interpreter="current", threads=bundle.threads)
    folders = sorted({wheel.parent.absolute() for wheel in bundle.wheels})
    links = [f"--find-links={folder}" for folder in folders]
    return Stack(
        name=side.name,
        framework=side.framework,
        python=side.python,
        requirements=side.requirements,
        options=(*side.options, *links, "--no-deps"),
        threads=bundle.threads,
        env=side.variables,
    )


@dataclass(frozen=True)
class BundleRun:
    """A bundle, how to start agents of its sides, and the folder of their logs.

    A is the old side, B the new one. The ``exits`` of their processes are those of all rounds.
    """

    bundle: Bundle
    launches: Mapping[SideName, Launch]
    logs: Path
    exits: Exits = field(default_factory=Exits)
    _pace: dict[str, float] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        """The inputs of a call."""
        return batch_of(self.bundle.inputs)

    @property
    def batches(self) -> list[Mapping[str, Array]]:
        """The one batch of the bundle, in C order, which frames have."""
        return [{name: array.copy(order="C") for name, array in self.bundle.inputs.items()}]

    def spec(self, side: SideName) -> PredictorSpec:
        """Return how to open the model on a side; what A takes bounds what B may take."""
        bundle = self.bundle
        software = bundle.old if side == "a" else bundle.new
        assert software is not None, "only a bundle of two sides has an old one"
        loaded = _loaded(bundle)
        model = loaded.manifest.models[0]
        stack = stack_of(bundle, software)
        case = Case("upgrade", loaded, model, stack, bundle.device, self.batch_size, None)
        spec = PredictorSpec(
            case=case,
            launch=self.launches[side],
            predictor=bundle.predictor,
            files=bundle.files,
            log=self.logs / f"{side}.log",
            timeout=_TIMEOUT,
        )
        return replace(spec, took=self._pace) if side == "a" else replace(spec, pace=self._pace)

    @contextlib.contextmanager
    def open_pair(self, order: Sequence[SideName], cores: Sequence[int]) -> Iterator[AgentPair]:
        """Start both sides, as an item does; raises Crashed where B alone fails."""
        specs = {side: self.spec(side) for side in SIDES}
        batches: Sequence[Outputs] = ()
        try:
            with open_pair(specs, order, cores, self.exits) as pair:
                try:
                    yield pair
                finally:
                    batches = pair.batches
        except MlmsError as error:
            raise crash_or(error, {"a": specs["a"], "b": specs["b"]}, batches) from error


def _loaded(bundle: Bundle) -> LoadedManifest:
    """Return what a manifest would say of a bundle's model: its own names and types of inputs.

    Nothing is checked of it, as its words are those of the model; a part of one need not even have
    an axis of the batch.
    """
    inputs = [
        Input.model_construct(name=name, type="tensor", element_type=element_type_of(array))
        for name, array in bundle.inputs.items()
    ]
    model = Model.model_construct(framework=bundle.framework, options=dict(bundle.options))
    manifest = Manifest.model_construct(
        name="bundle", version="1.0.0", task="", models=[model], inputs=inputs, outputs=[]
    )
    return LoadedManifest(Path(NAME), manifest, yaml12.Lines())
