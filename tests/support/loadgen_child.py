"""Run MLPerf's LoadGen with a system that answers at once: ``python loadgen_child.py REQUEST``.

REQUEST is a JSON file with a list of runs, each with the folder of its logs, its scenario, its
settings and the numbers of tokens of answers, by their samples in turn. The samples of each run's
queries are written into its folder, as samples.json. LoadGen is one per process, and writes its
logs when the process ends a run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mlperf_loadgen


def run(request: dict[str, Any]) -> None:
    folder = Path(request["folder"])
    samples: list[int] = []
    tokens = request["tokens"]

    def count_of(sample: int) -> int:
        return tokens[sample % len(tokens)] if tokens else 0

    def issue(queries: list[Any]) -> None:
        samples.extend(query.index for query in queries)
        if tokens:
            firsts = [mlperf_loadgen.QuerySampleResponse(query.id, 0, 0) for query in queries]
            mlperf_loadgen.FirstTokenComplete(firsts)
        answers = [
            mlperf_loadgen.QuerySampleResponse(query.id, 0, 0, count_of(query.index))
            for query in queries
        ]
        mlperf_loadgen.QuerySamplesComplete(answers)

    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, request["scenario"])
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    for name, value in request["settings"].items():
        setattr(settings, name, value)
    outputs = mlperf_loadgen.LogOutputSettings()
    outputs.outdir = str(folder)
    logs = mlperf_loadgen.LogSettings()
    logs.log_output = outputs
    logs.enable_trace = True
    system = mlperf_loadgen.ConstructSUT(issue, lambda: None)
    library = mlperf_loadgen.ConstructQSL(
        request["total"], request["loaded"], lambda loaded: None, lambda loaded: None
    )
    mlperf_loadgen.StartTestWithLogSettings(system, library, settings, logs)
    mlperf_loadgen.DestroyQSL(library)
    mlperf_loadgen.DestroySUT(system)
    (folder / "samples.json").write_text(json.dumps(samples))


if __name__ == "__main__":
    for wanted in json.loads(Path(sys.argv[1]).read_text()):
        run(wanted)
