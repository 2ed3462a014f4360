"""The inputs that both sides of an upgrade are compared on, and their outputs side by side.

With ``preprocess: stack`` each side makes inputs with its own stack, which are compared, too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, Outputs, SideName
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.agent.helpers import PictureAgent
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, Tolerance
from pytest_mlms.measure.evaluate.closeness import nearby_outputs as outputs_nearby
from pytest_mlms.measure.evaluate.inputs import LARGE, Inputs, edge_batches, random_batch
from pytest_mlms.measure.evaluate.output_sweep import Nearby, OutputSweep
from pytest_mlms.measure.evaluate.rows import BatchAxis, BatchRows, StateLoop, batch_axes_of
from pytest_mlms.measure.evaluate.scoring import place_of
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.inputs import Decoding, decoding_of, without_decoding
from pytest_mlms.measure.pipeline.selection import selected_elements
from pytest_mlms.provide.cases import Case

OpenPictures = Callable[[], AbstractContextManager[Mapping[SideName, PictureAgent]]]

_LEVELS = Tolerance(rtol=0.0, atol=1.0)
"""How far values of 0 to 255 may differ: by the rounding of another decoder of the same format."""

_MOST_NAMED = 3


@dataclass
class PictureSweep(OutputSweep):
    """The differences of the pictures decoded so far, and how many of their values differ."""

    values: int = 0
    differing: int = 0
    largest: int = 0

    @property
    def told(self) -> str:
        """How far the pictures of both sides agree."""
        if self.problem:
            return f"inputs differ: {self.problem}"
        if not self.differing:
            return f"both stacks decode {self.inputs:,} pictures to equal values"
        share = percent(self.differing / self.values, ".2g")
        text = f"inputs differ in {share} of the values of {self.inputs:,} pictures"
        text += f", by up to {self.largest} of 255 levels (allowed {_LEVELS.atol:g})"
        if not self.beyond:
            return text
        names = ", ".join(self.worst_names[:_MOST_NAMED])
        return f"{text}: more in {self.beyond:,} of them ({names})"

    def take(self, name: str, place: str, a: Array, b: Array) -> bool:
        """Compare the pixels of a picture, which input ``name`` is made of; are they equal?"""
        self.rules = {name: Rule(_LEVELS)}
        self.add({name: a[np.newaxis]}, {name: b[np.newaxis]}, [place])
        are_equal = np.array_equal(a, b)
        if a.shape == b.shape:
            self.values += a.size
        if a.shape == b.shape and not are_equal:
            difference = np.abs(a.astype(np.int16) - b)
            self.differing += int(np.count_nonzero(difference))
            self.largest = max(self.largest, int(difference.max()))
        return are_equal


_MOST_AHEAD = 64 * 2**20
"""Bytes of pictures that are decoded before they are used, on each side."""


@dataclass
class StackInputs:
    """Makes the inputs of each side with the Pillow of its own stack, by an agent of each."""

    agents: Mapping[SideName, PictureAgent]
    sweep: PictureSweep = field(default_factory=lambda: PictureSweep({}))

    def batches(
        self, dataset: Dataset, size: int
    ) -> Generator[dict[SideName, Outputs], None, None]:
        """Yield the batches of both sides; where their inputs are equal it is one for both.

        The last batch is filled up with the last element. Raises DatasetError for pictures that
        the baseline can't decode.
        """
        specs = [spec for spec in dataset.inputs if spec.steps and spec.steps[0].name == "decode"]
        inputs = tuple(without_decoding(one) if one in specs else one for one in dataset.inputs)
        with contextlib.closing(self._pictures(dataset, specs)) as pictures:
            for first in range(0, len(dataset), size):
                part = selected_elements(dataset, range(first, min(first + size, len(dataset))))
                found = [[next(pictures) for _ in specs] for _ in range(len(part))]
                sides = []
                for number in range(len(SIDES)):
                    elements = dict(part.elements)
                    for place, spec in enumerate(specs):
                        elements[spec.name] = [each[place][number] for each in found]
                    sides.append(replace(part, inputs=inputs, elements=elements))
                filled = [min(place, len(part) - 1) for place in range(size)]
                batch = sides[0].batch(filled)
                are_equal = all(a is b for each in found for a, b in each)
                yield {"a": batch, "b": batch if are_equal else sides[1].batch(filled)}

    def _pictures(
        self, dataset: Dataset, specs: Sequence[Input]
    ) -> Generator[tuple[Array, Array], None, None]:
        """Yield the pictures of each element on both sides, which decode the next ones meanwhile.

        As many are ahead as fit into ``_MOST_AHEAD`` with their files. Errors are raised in turn.
        """
        pending: deque[tuple[Callable[[], tuple[Array, Array]], int]] = deque()
        held = 0
        with contextlib.ExitStack() as opened:
            pools = {side: ThreadPoolExecutor(1, "mlms-decode") for side in SIDES}
            for pool in pools.values():
                opened.callback(pool.shutdown, cancel_futures=True)
            for index, spec in itertools.product(range(len(dataset)), specs):
                asked = _decoding(dataset, spec, index)
                size = 0 if isinstance(asked, DatasetError) else asked.memory
                found = {side: pools[side].submit(self._decode, side, asked) for side in SIDES}
                picture: Callable[[], tuple[Array, Array]] = functools.partial(
                    self._picture, dataset, spec.name, index, found
                )
                pending.append((picture, size))
                held += size
                while held > _MOST_AHEAD:
                    picture, size = pending.popleft()
                    held -= size
                    yield picture()
            for picture, _ in pending:
                yield picture()

    def _decode(self, side: SideName, asked: Decoding | DatasetError) -> Array:
        if isinstance(asked, DatasetError):
            raise asked
        return self.agents[side].decode(asked)

    def _picture(
        self, dataset: Dataset, name: str, index: int, found: Mapping[SideName, Future[Array]]
    ) -> tuple[Array, Array]:
        """Return the pixels of a picture on both sides: the same where they are equal.

        The baseline's stand for those that the candidate can't decode, or in another size.
        """
        try:
            a = found["a"].result()
        except DatasetError as error:
            raise dataset.label_error(index, str(error)) from error
        place = dataset.element_name(index)
        try:
            b = found["b"].result()
        except DatasetError as error:
            problem = f"the candidate can't decode {place}: {error}"
            self.sweep.problem = self.sweep.problem or problem
            return a, a
        are_equal = self.sweep.take(name, place, a, b)
        return (a, a) if are_equal or a.shape != b.shape else (a, b)


def _decoding(dataset: Dataset, spec: Input, index: int) -> Decoding | DatasetError:
    """Return how to decode an element of a dataset, or why it can't be."""
    try:
        return decoding_of(dataset.elements[spec.name][index], spec)
    except DatasetError as error:
        return error


ALL = 0
"""The number of inputs that stands for all of them."""

_LEAST_SAMPLE = 300
_LEAST_RANDOM = 64
_RANDOM_OF_ROUND = 16  # of each further one
_SEEDS_OF_ROUND = 1000
_PROBES = 2  # batches that tell how long all would take


@dataclass(frozen=True)
class Extent:
    """How many inputs are compared: ``most``, or as many as ``budget`` seconds allow.

    ``most`` is ALL, a number, or None for the budget. ``seed`` draws a sample, and random inputs.
    """

    most: int | None
    budget: float
    seed: int


class PairOfOutputs(NamedTuple):
    """The outputs of both sides for some inputs, and what messages call these.

    Outputs have a row an input where they have the axis of a batch. ``refused`` is why the
    candidate gave none, although the baseline did. ``nearby`` gives the baseline's outputs for
    inputs that are off by rounding. ``own`` are the candidate's for inputs that its stack made,
    where these differ from the baseline's, by which both sides are compared.
    """

    sides: Mapping[SideName, Outputs]
    names: Sequence[str]
    refused: str = ""
    nearby: Nearby | None = None
    own: Outputs | None = None

    def scored(self, side: SideName) -> Outputs:
        """Return the outputs of a side for its own inputs."""
        return self.sides[side] if side == "a" or self.own is None else self.own


def drawn_dataset(dataset: Dataset, case: Case, pair: AgentPair, extent: Extent) -> Dataset:
    """Return the dataset, or a sample of it where the extent has no time for all of it.

    A sample has each shape of the elements in its share. Sequences are never cut.
    """
    count = len(dataset)
    if case.loaded.manifest.has_state or count <= _LEAST_SAMPLE:
        return dataset
    most = extent.most
    if most is None:
        random = np.random.default_rng(extent.seed)
        found = []
        for _ in range(_PROBES):
            numbers = random.integers(len(dataset), size=case.batch_size).tolist()
            began = time.perf_counter()
            batch = dataset.batch(numbers)
            _predict_both(pair, {"a": batch, "b": batch})
            found.append(time.perf_counter() - began)
        seconds = min(found)
        batches = extent.budget / max(seconds, 1e-9)
        most = max(_LEAST_SAMPLE, int(batches * case.batch_size))
    if most == ALL or most >= count:
        return dataset
    return selected_elements(dataset, _sample(dataset, most, extent.seed))


def _sample(dataset: Dataset, count: int, seed: int) -> list[int]:
    """Return the numbers of a sample, in ascending order, with each shape in its share."""
    random = np.random.default_rng(seed)
    strata: dict[object, list[int]] = {}
    for index in range(len(dataset)):
        strata.setdefault(_shape_of(dataset, index), []).append(index)
    chosen: list[int] = []
    for members in strata.values():
        share = max(1, round(count * len(members) / len(dataset)))
        chosen += random.choice(members, min(share, len(members)), replace=False).tolist()
    return sorted(chosen)


def _shape_of(dataset: Dataset, index: int) -> object:
    """Return the shapes of an element's arrays; shapes of files are not known yet."""
    shapes = []
    for values in dataset.elements.values():
        in_memory = isinstance(values, list | tuple)
        shapes.append(np.shape(values[index]) if in_memory else ())
    return tuple(shapes)


def _predict_both(
    pair: AgentPair, batches: Mapping[SideName, Outputs]
) -> tuple[dict[SideName, Outputs], str]:
    """Return the outputs of each side for its batch, and why the candidate refused its own.

    Sides that could be loaded at once compute at once, as nothing is timed here.
    """

    def predict(side: SideName) -> Outputs:
        try:
            with pair.running(side) as predictor:
                return predictor.predict(batches[side])
        except Refused:
            pair.wait(side)
            raise

    if pair.together:
        with ThreadPoolExecutor(1) as pool:
            candidate = pool.submit(predict, "b")
            try:
                baseline = predict("a")
            except BaseException as error:
                if not isinstance(error, Refused):
                    pair.b.agent.kill()  # which ends the thread
                raise
            of_candidate = candidate.result
    else:
        baseline = predict("a")
        of_candidate = functools.partial(predict, "b")
    try:
        return {"a": baseline, "b": of_candidate()}, ""
    except Refused as error:
        return {"a": baseline, "b": {}}, str(error)


def paired_outputs(
    pair: AgentPair, case: Case, dataset: Dataset, own: StackInputs | None = None
) -> Generator[PairOfOutputs, None, None]:
    """Yield the outputs of both sides for a dataset, each batch of which is prepared once.

    With ``own`` each side's stack prepares it. Close this before the agents of ``own``, which
    prepare some batches ahead.
    """
    inputs = Inputs.of(case, dataset, pair.a)
    size = inputs.batch_size
    loops = {side: StateLoop(dataset, size) for side in SIDES}
    done = 0
    prepared = own.batches(dataset, size) if own else ({"a": each} for each in inputs.batches())
    with contextlib.closing(prepared):
        for of_sides in prepared:
            batch = of_sides["a"]
            count = min(size, len(dataset) - done)
            names = [place_of(index, dataset) for index in range(done, done + count)]
            batches = {side: loops[side].next(batch) for side in SIDES}
            found, refused = _predict_both(pair, batches)
            for side in SIDES:
                loops[side].done(found[side])
            paired = _paired(pair, case, found, names, refused, size)
            paired = paired._replace(nearby=_nearby_rows(pair, case, batches["a"], count))
            if of_sides.get("b", batch) is not batch and not refused:
                with pair.running("b") as predictor:
                    outputs = predictor.predict(of_sides["b"])
                rows = BatchRows(_axes_of(pair.b, case), outputs, size, count)
                paired = paired._replace(own=rows.by_input())
            yield paired
            done += count


def outputs_of_random(
    pair: AgentPair, case: Case, extent: Extent, number_of_round: int
) -> Iterator[PairOfOutputs]:
    """Yield the outputs of both sides for random inputs, and in the first round for edges.

    Each round has inputs of its own, the first one most. They end early where they take as long as
    the budget. Edges that the baseline refuses are left out, and between variants values of large
    magnitude: a quantized one clips what is beyond its calibration.
    """
    size = case.batch_size
    least = _LEAST_RANDOM if number_of_round == 1 else _RANDOM_OF_ROUND
    seed = extent.seed + _SEEDS_OF_ROUND * (number_of_round - 1)
    first: Outputs = {}
    end = time.monotonic() + extent.budget
    for number in range(-(-least // size)):
        if first and time.monotonic() > end:
            break
        names = [f"random input {size * number + row} of seed {seed}" for row in range(size)]
        batch = random_batch(pair.a, case, seed + number)
        first = first or batch
        found, refused = _predict_both(pair, {"a": batch, "b": batch})
        paired = _paired(pair, case, found, names, refused, size)
        yield paired._replace(nearby=_nearby_rows(pair, case, batch, size))
    if number_of_round > 1:
        return
    for label, batch in edge_batches(first, case.loaded.manifest.inputs, pair.a.inputs):
        if label == LARGE and case.crosses_variants:
            continue
        try:
            found, refused = _predict_both(pair, {"a": batch, "b": batch})
        except Refused:
            continue
        paired = _paired(pair, case, found, [label] * size, refused, size)
        yield paired._replace(nearby=_nearby_rows(pair, case, batch, size))


def nearby_outputs(
    pair: AgentPair, case: Case, batch: Outputs, side: SideName = "a"
) -> NearbyOutputs:
    """Return the outputs of a side for a batch once more, and for batches near it."""

    def asked(ask: Callable[[Predictor], Outputs]) -> Outputs:
        try:
            with pair.running(side) as predictor:
                return ask(predictor)
        except Refused:
            pair.wait(side)
            raise

    manifest = case.loaded.manifest
    found = outputs_nearby(
        lambda inputs: asked(lambda predictor: predictor.predict(inputs)),
        batch,
        manifest.batch_axes,
    )
    if manifest.generate is None:
        return found
    return found._replace(
        held_to=lambda tokens: asked(lambda predictor: predictor.held_to(batch, tokens))
    )


def _nearby_rows(pair: AgentPair, case: Case, batch: Outputs, count: int) -> Nearby:
    """Return what gives those outputs, a row an input where there is one."""
    axes = _axes_of(pair.a, case)
    size = case.batch_size
    return lambda: nearby_outputs(pair, case, batch).by(
        lambda found: BatchRows(axes, found, size, count).by_input()
    )


def _paired(
    pair: AgentPair,
    case: Case,
    found: Mapping[SideName, Outputs],
    names: Sequence[str],
    refused: str,
    size: int,
) -> PairOfOutputs:
    sides: dict[SideName, Outputs] = {}
    for side in SIDES:
        rows = BatchRows(_axes_of(pair[side], case), found[side], size, len(names))
        sides[side] = rows.by_input()
    return PairOfOutputs(sides, names, refused)


def _axes_of(predictor: Predictor, case: Case) -> dict[str, BatchAxis]:
    manifest = case.loaded.manifest
    return batch_axes_of(manifest.outputs, predictor, manifest.batch_axes)
