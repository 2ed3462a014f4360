"""The outputs of both sides of an upgrade for pictures, in turns with those of one side alone."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench_pictures import write_pictures
from bench_row import DIGITS, ROOT, Row, in_random_order

BATCH = 32
PASSES = 5
BOUNDS = {"pytest": 1.2, "each stack": 3.0}
"""By who decodes: if each stack does, that is twice the work of one side."""


def measure_both_sides() -> Iterator[Row]:
    """Measure passes through 1,000 JPEG files of 500 x 375 by the network of digits."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as opened:
        sides = _passes(Path(name), opened)
        found = [in_random_order(sides) for _ in range(PASSES + 1)][1:]
    for decoder, bound in BOUNDS.items():
        ratio = statistics.median(each[decoder] / each["one side"] for each in found)
        yield Row(f"1,000 JPEGs decoded by {decoder}: both sides / one", ratio, bound)


def _passes(folder: Path, opened: contextlib.ExitStack) -> dict[str, Callable[[], float]]:
    from pytest_mlms.core.records import Place
    from pytest_mlms.decide.upgrade.agents import open_pair
    from pytest_mlms.decide.upgrade.compared_inputs import StackInputs, paired_outputs
    from pytest_mlms.decide.upgrade.rounds import SIDES
    from pytest_mlms.measure.agent.helpers import PictureSpec, open_pictures
    from pytest_mlms.measure.agent.opening import PredictorSpec
    from pytest_mlms.measure.evaluate.inputs import Inputs
    from pytest_mlms.measure.evaluate.rows import predict_rows
    from pytest_mlms.measure.pipeline import open_dataset
    from pytest_mlms.provide.stacks.launch import prepare

    sys.path.insert(0, str(ROOT))  # for tests
    from tests.support.upgrade_case import OLD, case_of

    write_pictures(folder)
    case = replace(case_of(folder, new=OLD), batch_size=BATCH)
    manifest = case.loaded.manifest
    place = Place(folder / "labels.csv", 1)
    dataset = open_dataset(folder, manifest.inputs, place)
    launch, predictor = prepare(OLD, ROOT), ROOT / "predictors" / "onnxruntime.py"
    files = {"graph": DIGITS / "digits_cnn.onnx"}
    log = folder / "log"
    model = PredictorSpec(case, launch, predictor, files, log, timeout=60)
    pair = opened.enter_context(open_pair(dict.fromkeys(SIDES, model), SIDES, ()))
    decoder = PictureSpec(place, OLD.name, launch, predictor, log, timeout=60)
    agents = {side: opened.enter_context(open_pictures(decoder)) for side in SIDES}

    def timed(outputs: Callable[[], Iterator[object]]) -> Callable[[], float]:
        def measure() -> float:
            start = time.perf_counter()
            for _ in outputs():
                pass
            return time.perf_counter() - start

        return measure

    inputs = Inputs.of(case, dataset, pair.a)
    return {
        "one side": timed(lambda: predict_rows(pair.a, inputs, manifest.outputs)),
        "pytest": timed(lambda: paired_outputs(pair, case, dataset)),
        "each stack": timed(lambda: paired_outputs(pair, case, dataset, StackInputs(agents))),
    }
