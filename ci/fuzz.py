"""The fuzzer of users' files: ``bash ci/fuzz [N [TARGET…] | TARGET:NUMBER…]``.

N (100,000) is the number of manifests; of other files there are as many as their share of that.
Of targets that are named there are N of each.
The mutants are read in processes with bounded memory, some thousand each. One that ends in
something else than an error of ours, takes more than 2 s of the CPU (10 s for a picture), or takes
its process with it is printed with its number: ``bash ci/fuzz TARGET:NUMBER`` reads it again and
prints the traceback.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support.fuzzing import TARGETS, Failure

_MUTANTS = 100_000
_CHUNK = 2000
_MEMORY = 6 << 30  # bytes of address space
_HANG_GUARD = 60  # seconds for a mutant, before its process is ended with a traceback
_READ_CHUNK = "--chunk"


class Chunk(NamedTuple):
    """Mutants of a target, from ``first`` to the one before ``last``."""

    target: str
    first: int
    last: int


def main() -> int:
    """Read the mutants that the command line names; return 1 where one of them failed."""
    arguments = sys.argv[1:]
    if arguments[:1] == [_READ_CHUNK]:
        target, first, last, progress = arguments[1:]
        _read_chunk(Chunk(target, int(first), int(last)), Path(progress))
        return 0
    if arguments and ":" in arguments[0]:
        return _read_again(arguments)
    mutants = int(arguments[0]) if arguments else _MUTANTS
    began = time.monotonic()
    count = 0
    chunks = list(_chunks(mutants, arguments[1:]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(_failures_of, chunks):
            for failure in found:
                count += 1
                print(f"{failure.mutant}: {failure.problem}", flush=True)
    total = sum(chunk.last - chunk.first for chunk in chunks)
    print(f"{total:,} mutants in {time.monotonic() - began:.0f} s: {count:,} failed")
    return 1 if count else 0


def _chunks(mutants: int, names: Sequence[str]) -> Iterator[Chunk]:
    for name in names or TARGETS:
        target = TARGETS[name]
        share = 1.0 if names else target.share
        count = max(len(target.seeds), int(mutants * share))
        for first in range(0, count, _CHUNK):
            yield Chunk(name, first, min(count, first + _CHUNK))


def _failures_of(chunk: Chunk) -> list[Failure]:
    """Read a chunk in processes of its own: another one goes on behind a mutant that ended one."""
    failures = []
    first = chunk.first
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder, "progress")
        while first < chunk.last:
            progress.write_text(str(first))
            command = [sys.executable, __file__, _READ_CHUNK, chunk.target, str(first)]
            done = subprocess.run(
                [*command, str(chunk.last), str(progress)],
                capture_output=True,
                text=True,
                check=False,
            )
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    failures.append(Failure(**json.loads(line)))
            if done.returncode == 0:
                break
            last = int(progress.read_text())
            reason = done.stderr.strip().splitlines()[-1:] or [""]
            problem = f"ended its process, with status {done.returncode}: {reason[0][:200]}"
            failures.append(Failure(f"{chunk.target}:{last}", problem))
            first = last + 1
    return failures


def _read_chunk(chunk: Chunk, progress: Path) -> None:
    """Read mutants in this process, and print a line of JSON for each that fails."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    target = TARGETS[chunk.target]
    with tempfile.TemporaryDirectory() as folder, progress.open("r+") as file:
        for number in range(chunk.first, chunk.last):
            os.pwrite(file.fileno(), str(number).encode(), 0)
            faulthandler.dump_traceback_later(_HANG_GUARD, exit=True)
            failure = target.run(number, Path(folder))
            faulthandler.cancel_dump_traceback_later()
            if failure:
                print(json.dumps(failure.__dict__), flush=True)


def _read_again(names: Sequence[str]) -> int:
    """Read single mutants, and print what went wrong with each."""
    status = 0
    for name in names:
        target, number = name.split(":")
        with tempfile.TemporaryDirectory() as folder:
            failure = TARGETS[target].run(int(number), Path(folder))
        print(f"{name}: {failure.problem if failure else 'is read, or refused as it should be'}")
        if failure:
            print(failure.trace)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
