"""The fuzzer of users' files: ``bash ci/fuzz [N [TARGET…] | TARGET:NUMBER…]``.

N (100,000) is the number of manifests; of other files there are as many as their share of that.
Of targets that are named there are N of each.
The mutants are read in processes of their own, some thousand each. One that ends in something else
than an error of ours, takes more than 2 s of the CPU or 300 MiB (10 s and 4 GiB for a picture), or
takes its process with it is printed with its number: ``bash ci/fuzz TARGET:NUMBER`` reads it again
and prints the traceback. At the end of a target its share of mutants is printed that were read, and
not refused: one whose mutants all fail at their first byte would prove nothing. A file system in
memory, as TMPDIR, makes it faster.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support.fuzzing import TARGETS, Outcome

_MUTANTS = 100_000
_CHUNK = 10_000
_HANG_GUARD = 60  # seconds for a mutant, before its process is ended with a traceback
_READ_CHUNK = "--chunk"
_FAILED = "failed: "
_WAS_READ = "read: "


class Chunk(NamedTuple):
    """Mutants of a target, from ``first`` to the one before ``last``, maybe its last ones."""

    target: str
    first: int
    last: int
    is_last: bool


class Read(NamedTuple):
    """The mutants of a chunk that failed, and how many were read."""

    failures: list[Outcome]
    read: int


def main() -> int:
    """Read the mutants that the command line names; return 1 where one of them failed."""
    arguments = sys.argv[1:]
    if arguments[:1] == [_READ_CHUNK]:
        target, first, last, progress = arguments[1:]
        _read_chunk(Chunk(target, int(first), int(last), False), Path(progress))
        return 0
    if arguments and ":" in arguments[0]:
        return _read_again(arguments)
    mutants = int(arguments[0]) if arguments else _MUTANTS
    began = time.monotonic()
    chunks = list(_chunks(mutants, arguments[1:]))
    failed, read = 0, 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for chunk, outcome in zip(chunks, pool.map(_read_apart, chunks), strict=True):
            failed += len(outcome.failures)
            read += outcome.read
            for failure in outcome.failures:
                print(f"{failure.mutant}: {failure.problem}", flush=True)
            if chunk.is_last:
                seconds = time.monotonic() - began
                share = f"{read / chunk.last:.0%} of {chunk.last:,} were read"
                print(f"{chunk.target}: {share}, after {seconds:.0f} s", flush=True)
                read = 0
    total = sum(chunk.last - chunk.first for chunk in chunks)
    print(f"{total:,} mutants in {time.monotonic() - began:.0f} s: {failed:,} failed")
    return 1 if failed else 0


def _chunks(mutants: int, names: Sequence[str]) -> Iterator[Chunk]:
    for name in names or TARGETS:
        target = TARGETS[name]
        share = 1.0 if names else target.share
        count = max(len(target.seeds), int(mutants * share))
        for first in range(0, count, _CHUNK):
            last = min(count, first + _CHUNK)
            yield Chunk(name, first, last, last == count)


def _read_apart(chunk: Chunk) -> Read:
    """Read a chunk in processes of its own: another one goes on behind a mutant that ended one."""
    failures = []
    read = 0
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
                if line.startswith(_FAILED):
                    failures.append(Outcome(*json.loads(line.removeprefix(_FAILED))))
                elif line.startswith(_WAS_READ):
                    read += int(line.removeprefix(_WAS_READ))
            if done.returncode == 0:
                break
            last = int(progress.read_text())
            reason = done.stderr.strip().splitlines()[-1:] or [""]
            problem = f"ended its process, with status {done.returncode}: {reason[0][:200]}"
            failures.append(Outcome(f"{chunk.target}:{last}", problem))
            first = last + 1
    return Read(failures, read)


def _read_chunk(chunk: Chunk, progress: Path) -> None:
    """Read mutants in this process; print a line of JSON for each that fails, and those read."""
    target = TARGETS[chunk.target]
    read = 0
    with tempfile.TemporaryDirectory() as folder, progress.open("r+") as file:
        for number in range(chunk.first, chunk.last):
            os.pwrite(file.fileno(), str(number).encode(), 0)
            faulthandler.dump_traceback_later(_HANG_GUARD, exit=True)
            outcome = target.run(number, Path(folder))
            faulthandler.cancel_dump_traceback_later()
            read += outcome.is_read
            if outcome.problem:
                print(f"{_FAILED}{json.dumps(outcome)}", flush=True)
    print(f"{_WAS_READ}{read}")


def _read_again(names: Sequence[str]) -> int:
    """Read single mutants, and print what went wrong with each."""
    status = 0
    for name in names:
        target, number = name.split(":")
        with tempfile.TemporaryDirectory() as folder:
            outcome = TARGETS[target].run(int(number), Path(folder))
        print(f"{name}: {outcome.problem or 'is read, or refused as it should be'}")
        if outcome.problem:
            print(outcome.trace)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
