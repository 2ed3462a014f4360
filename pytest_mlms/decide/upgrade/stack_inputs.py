"""Inputs that each side of an upgrade makes with its own stack, and how far they agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, Outputs, SideName
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.agent.helpers import PictureAgent
from pytest_mlms.measure.evaluate.closeness import Rule, Tolerance
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.selection import selected_elements
from pytest_mlms.measure.pipeline.stack_pictures import decoding_of, without_decoding

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

    def take(self, name: str, place: str, a: Array, b: Array) -> None:
        """Compare the pixels of a picture, which input ``name`` is made of."""
        self.rules = {name: Rule(_LEVELS)}
        self.add({name: a[np.newaxis]}, {name: b[np.newaxis]}, [place])
        if a.shape == b.shape:
            difference = np.abs(a - b)
            self.values += difference.size
            self.differing += int(np.count_nonzero(difference))
            self.largest = max(self.largest, int(difference.max(initial=0)))


@dataclass
class StackInputs:
    """Makes the inputs of each side with the Pillow of its own stack, by an agent of each."""

    agents: Mapping[SideName, PictureAgent]
    sweep: PictureSweep = field(default_factory=lambda: PictureSweep({}))

    def batches(self, dataset: Dataset, size: int) -> Iterator[dict[SideName, Outputs]]:
        """Yield the batches of both sides; where their inputs are equal it is one for both.

        The last batch is filled up with the last element. Raises DatasetError for pictures that
        the baseline can't decode.
        """
        last = len(dataset) - 1
        with ThreadPoolExecutor(len(SIDES)) as pool:
            for first in range(0, len(dataset), size):
                indices = range(first, min(first + size, last + 1))
                filled = [min(first + place, last) - first for place in range(size)]
                part = selected_elements(dataset, indices)
                sides = dict(zip(SIDES, self._decoded(part, pool), strict=True))
                batch = sides["a"].batch(filled)
                yield {
                    "a": batch,
                    "b": batch if sides["b"] is sides["a"] else sides["b"].batch(filled),
                }

    def _decoded(self, part: Dataset, pool: ThreadPoolExecutor) -> list[Dataset]:
        """Return some elements as each side decodes them."""
        elements: dict[SideName, dict[str, list[Array]]] = {"a": {}, "b": {}}
        specs = [spec for spec in part.inputs if spec.steps and spec.steps[0].name == "decode"]
        are_equal = True
        for spec in specs:
            for index in range(len(part)):
                a, b = self._picture(part, spec, index, pool)
                are_equal = are_equal and a is b
                elements["a"].setdefault(spec.name, []).append(a)
                elements["b"].setdefault(spec.name, []).append(b)
        inputs = tuple(without_decoding(one) if one in specs else one for one in part.inputs)
        sides = [
            replace(part, inputs=inputs, elements={**part.elements, **elements[side]})
            for side in SIDES
        ]
        return [sides[0], sides[0]] if are_equal else sides

    def _picture(
        self, part: Dataset, spec: Input, index: int, pool: ThreadPoolExecutor
    ) -> tuple[Array, Array]:
        """Return the pixels of a picture on both sides: the same where they are equal.

        The baseline's stand for those that the candidate can't decode, or in another size.
        """
        place = part.element_name(index)
        try:
            asked = decoding_of(part.elements[spec.name][index], spec)
            found = {side: pool.submit(self.agents[side].decode, asked) for side in SIDES}
            a = found["a"].result()
        except DatasetError as error:
            raise part.label_error(index, str(error)) from error
        try:
            b = found["b"].result()
        except DatasetError as error:
            problem = f"the candidate can't decode {place}: {error}"
            self.sweep.problem = self.sweep.problem or problem
            return a, a
        self.sweep.take(spec.name, place, a.astype(np.int16), b.astype(np.int16))
        return (a, a) if a.shape != b.shape or np.array_equal(a, b) else (a, b)
