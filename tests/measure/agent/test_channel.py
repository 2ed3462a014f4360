"""The pipes to and from an agent, and the check of its replies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pytest
from mlms_predictors._run.protocol import ProtocolError
from mlms_predictors._run.replies import (
    DeviceBytes,
    IdleReply,
    LoadReply,
    RunReply,
    ServedReply,
    TurnReply,
    UsageReply,
)

from pytest_mlms.core.errors import AgentError, MlmsError, Unavailable
from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.channel import (
    UNTOLD,
    Channel,
    Energy,
    LogFile,
    check_served,
    check_waited,
    read_energy,
    read_record,
    take_times,
    take_tokens,
    temporary_log,
)
from pytest_mlms.measure.agent.load import LoadPlan
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.process import Refused, start_agent
from pytest_mlms.measure.trace.builder import TraceBuilder, add_reply, probe_statuses
from pytest_mlms.measure.trace.records import TraceMetadata, TraceRun
from tests.support.agents import TIMEOUT, faulty_spec, speaker
from tests.support.frame_mutants import Frame, frames_of, mutant
from tests.support.project import PREDICTORS, launch

ECHO = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer, 16)"
SILENCE = "import time; time.sleep(600)"
NOTHING = "pass"


@contextmanager
def channel_to(code: str) -> Iterator[Channel]:
    command = [sys.executable, "-u", "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    requests = cast(IO[bytes], process.stdin)
    replies = cast(IO[bytes], process.stdout)
    channel = Channel(process, requests, replies)
    channel.deadline = time.monotonic() + 300
    try:
        yield channel
    finally:
        process.kill()
        process.wait()
        channel.close()


def test_lines_and_bytes_come_back_in_their_order() -> None:
    with channel_to(ECHO) as channel:
        channel.write([b"first\nsecond\n", memoryview(b"0123456789")])
        channel.write([b"x" * 100])
        assert channel.readline(1000) == b"first\n"
        assert channel.readline(1000) == b"second\n"
        received = bytearray(10)
        count = 0
        while count < 10:
            count += channel.readinto(memoryview(received)[count:])
        assert bytes(received) == b"0123456789"


def test_a_line_that_is_too_long_is_returned_without_its_end() -> None:
    with channel_to(ECHO) as channel:
        channel.write([b"x" * 64])
        assert len(channel.readline(16)) >= 16


def test_more_than_a_pipe_holds_is_written_while_it_is_read() -> None:
    sink = "import sys; print(len(sys.stdin.buffer.read(1 << 23)))"
    with channel_to(sink) as channel:
        channel.write([bytes(1 << 23)])
        assert channel.readline(100) == b"8388608\n"


def test_the_deadline_ends_the_wait_for_a_program_that_is_silent() -> None:
    with channel_to(SILENCE) as channel:
        channel.deadline = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.readline(100)


def test_the_end_of_a_program_ends_the_wait() -> None:
    with channel_to(NOTHING) as channel, pytest.raises(EOFError):
        channel.readline(100)


def test_a_channel_knows_that_it_is_closed() -> None:
    with channel_to(SILENCE) as channel:
        assert not channel.closed
    assert channel.closed


def drained(path: Path, chunks: Sequence[bytes]) -> LogFile:
    """Return the log of a process that wrote ``chunks`` and ended."""
    reading, writing = os.pipe()
    log = LogFile.drain(os.fdopen(reading, "rb"), path)
    with os.fdopen(writing, "wb", 0) as stream:
        for chunk in chunks:
            stream.write(chunk)
    log._thread.join()
    return log


def test_a_log_has_all_of_a_short_output(tmp_path: Path) -> None:
    log = drained(tmp_path / "logs" / "a.log", [b"one\n", b"two\n"])
    log.close()
    assert log.path.read_text() == "one\ntwo\n"
    assert log.tail(1) == ["two"]


def test_a_log_of_a_long_output_has_both_ends_and_tells_how_much_is_left_out(
    tmp_path: Path,
) -> None:
    lines = [b"%07d\n" % number for number in range(500_000)]
    log = drained(tmp_path / "a.log", lines)
    assert log.tail(1) == ["0499999"]
    log.close()
    text = log.path.read_text()
    assert text.startswith("0000000\n")
    assert text.endswith("0499999\n")
    assert len(text.encode()) < 2 << 20
    head, _, rest = text.partition("\n… ")
    left_out, _, tail = rest.partition(" bytes left out …\n")
    left_out_bytes = int(left_out.replace(",", ""))
    assert len(head) + left_out_bytes + len(tail) == 8 * 500_000


def test_a_log_that_can_not_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    log = drained(tmp_path / "occupied" / "a.log", [b"last words\n"])
    last_words, note = log.tail()
    assert last_words == "last words"
    assert "the log is not complete" in note
    log.close()
    assert not (tmp_path / "occupied" / "a.log").exists()


def test_a_process_that_prints_nothing_has_no_log(tmp_path: Path) -> None:
    log = drained(tmp_path / "a.log", [])
    log.close()
    assert log.tail() == []
    assert not log.path.exists()


def test_a_temporary_log_is_kept_only_where_an_agent_fails_or_an_error_names_it() -> None:
    with temporary_log("mlms-test-") as done:
        assert done.parent.is_dir()
    with pytest.raises(MlmsError), temporary_log("mlms-test-") as mistaken:
        raise MlmsError("a mistake of the user's")
    with pytest.raises(AgentError), temporary_log("mlms-test-") as failed:
        raise AgentError("the agent died")
    with pytest.raises(Unavailable), temporary_log("mlms-test-") as named:
        raise Unavailable(f"no module (log: {named})")
    assert not done.parent.exists()
    assert not mistaken.parent.exists()
    failed.parent.rmdir()
    named.parent.rmdir()


def test_the_folder_of_a_process_that_was_killed_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = (
        "import os, sys, tempfile\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "from pytest_mlms.measure.agent.channel import temporary_log\n"
        "log = temporary_log('mlms-test-')\n"
        "log.__enter__().write_text('loaded')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    (abandoned,) = tmp_path.iterdir()
    failed = fail_in_log()
    assert not abandoned.exists()
    with temporary_log("mlms-test-") as other, temporary_log("mlms-test-") as third:
        assert other.parent.exists()
    assert failed.parent.exists()
    assert not third.parent.exists()


def fail_in_log() -> Path:
    """Return the log that an error of an agent keeps."""
    with pytest.raises(AgentError), temporary_log("mlms-test-") as failed:
        raise AgentError("the agent died")
    return failed


BATCH = {"image": np.zeros((2, 1, 8, 8), np.float32)}
MUTANTS = 300
LOAD = {
    "device": "cpu",
    "threads": 1,
    "inputs": [["image", "float32", [None, 1, 8, 8]]],
    "outputs": [],
    "seconds": 0.5,
    "waited": 0.0,
    "rss_before": 1,
    "peak_is_since_load": True,
}


def converse(spec: PredictorSpec) -> None:
    """Use most requests of an agent."""
    with open_predictor(spec) as predictor:
        predictor.predict(BATCH)
        predictor.run("single_stream", [BATCH], seconds=0, least=3, longest=60)
        predictor.bind([BATCH])
        predictor.turn(count=2, outputs=True)
        schedule = np.arange(20, dtype=np.int64) * 50_000
        predictor.load_run([BATCH], LoadPlan(np.zeros(20, int), 60, schedule))
        predictor.profile(BATCH, 2)
        with pytest.raises(Refused):
            predictor.inner(BATCH)
        reply = predictor.trace("layer+hardware", ["layers", "io"], 2, BATCH, {}, 60)
        builder = TraceBuilder(TraceMetadata())
        builder.add_run(TraceRun("layer"))
        add_reply(builder, reply, 0, 0)
        probe_statuses(reply)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Frame]:
    """The replies of an agent in a conversation."""
    folder = tmp_path_factory.mktemp("recorded")
    record = f'"$0" "$@" | tee "{folder}/replies"'
    plain = launch()
    recorded = replace(plain, command=("/bin/sh", "-c", record, *plain.command))
    spec = faulty_spec(folder, layers="stepwise", pages=1)
    converse(replace(spec, launch=recorded))
    return frames_of((folder / "replies").read_bytes())


def replayed(spec: PredictorSpec, folder: Path, replies: bytes) -> PredictorSpec:
    """Return how to start a program that sends these bytes, whatever it is asked."""
    file = folder / "replies"
    file.write_bytes(replies)
    return replace(spec, launch=Launch(("/bin/sh", "-c", f'cat "{file}"'), {}))


def test_a_recorded_conversation_can_be_replayed(frames: list[Frame], tmp_path: Path) -> None:
    sound = b"".join(frame.encode() for frame in frames)
    converse(replayed(faulty_spec(tmp_path), tmp_path, sound))


def test_mutants_of_a_conversation_end_in_errors_of_ours(
    frames: list[Frame], tmp_path: Path
) -> None:
    spec = faulty_spec(tmp_path)
    refused = 0
    for seed in range(MUTANTS):
        try:
            converse(replayed(spec, tmp_path, mutant(frames, seed)))
        except MlmsError as error:
            refused += 1
            assert len(str(error)) < 10_000, f"the error of mutant {seed} is too long"
        except Exception as error:
            raise AssertionError(f"mutant {seed}") from error
    assert refused > MUTANTS / 2


def refusal_of(replies: list[dict[str, Any]], folder: Path) -> str:
    """Return the error of the first request that isn't answered by these replies."""
    agent = start_agent(speaker(*replies), PREDICTORS / "faulty.py", folder / "log", TIMEOUT)
    try:
        for kind in ("bind", "turn", "peaks"):
            agent.request(kind)
    except AgentError as error:
        return str(error)
    finally:
        agent.close()
    raise AssertionError("all replies were taken")


def test_an_extra_reply_is_noticed_by_its_number(tmp_path: Path) -> None:
    text = refusal_of([{}, {"number": 1, "type": "bind"}], tmp_path)
    assert "'turn': expected the reply to request 2, found 'bind' of request 1" in text


def test_a_reply_of_another_type_is_refused(tmp_path: Path) -> None:
    text = refusal_of([{"type": "hello"}], tmp_path)
    assert "'bind': expected the reply to request 1, found 'hello' of request 1" in text


def test_an_error_without_a_text_is_refused(tmp_path: Path) -> None:
    text = refusal_of([{"type": "error", "error": "ValueError"}], tmp_path)
    assert "an error has no text as its 'message'" in text


def test_what_is_shown_of_a_reply_is_short(tmp_path: Path) -> None:
    text = refusal_of([{"type": "x" * 100_000}], tmp_path)
    assert len(text) < 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": "many"}, "threads: .*, found 'many'"),
        ({"seconds": "NaN"}, "seconds: .*finite number, found 'NaN'"),
        ({"inputs": [["image"]]}, "inputs.0.*: "),
        ({"inputs": [["image", "float32", ["x"]]]}, "inputs.0.*: "),
    ],
)
def test_a_field_of_another_kind_is_named(change: dict[str, Any], message: str) -> None:
    assert read_record(LoadReply, LOAD).seconds == 0.5
    with pytest.raises(ProtocolError, match=message):
        read_record(LoadReply, {**LOAD, **change})


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(ProtocolError, match="device: "):
        read_record(LoadReply, {name: LOAD[name] for name in LOAD if name != "device"})


SERVED = ServedReply([[0]], [True], [1], calls=2, others=1, held=[2], differing=[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"usual": []}, "'samples', 'usual' and 'picks' are not equally many"),
        ({"others": 3}, "calls that differ are more than those that are held"),
        ({"differing": [-1]}, "calls that differ are more than those that are held"),
        ({"held": [2, 2]}, "calls that differ are more than those that are held"),
        ({"samples": [[1]]}, "a call has a sample of which no call is held"),
        ({"samples": [[]]}, "a call has a sample of which no call is held"),
        ({"picks": [0]}, "a call was picked less than once"),
    ],
)
def test_numbers_of_calls_under_load_fit_each_other(change: dict[str, Any], message: str) -> None:
    check_served(SERVED)
    with pytest.raises(ProtocolError, match=message):
        check_served(SERVED._replace(**change))


ROW = np.ones(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end": np.array([1.0, np.nan])}, "'end' have a value that is not finite"),
        ({"end": np.ones(3)}, "'start' and 'end' are not equally many"),
        ({"end": np.ones(2, "f4")}, r"'end' are float32 \[2\], not a row of float64"),
        ({"end": np.ones((1, 2))}, "not a row"),
        ({"end": np.ones(0)}, "not a row"),
        ({"device": np.ones(1)}, "'device' and 'start' are not equally many"),
        ({"end": np.zeros(2)}, "a call ends before it starts"),
        ({"device": -ROW}, "less than no time on the device"),
        ({"end": 1 + ROW}, "starts before the last one ended"),
    ],
)
def test_times_are_finite_as_many_as_each_other_and_in_their_order(
    change: dict[str, np.ndarray], message: str
) -> None:
    times = dict.fromkeys(("start", "end", "wait", "cpu", "at"), ROW)
    assert take_times(as_sent({**times}), times) == times
    with pytest.raises(ProtocolError, match=message):
        take_times(as_sent({**times, **change}), {**times, **change})


def as_sent(times: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"time:{name}": array for name, array in times.items()}


SHORT = """
from mlms_predictors import Loaded, Tensor
def versions():
    return {"faulty": "1.2.3"}
def devices():
    return ["cpu"]
def load(request):
    tensor = Tensor("image", "float32", (None, 1, 8, 8))
    return Loaded(None, "cpu", None, [tensor], [tensor._replace(name="logits")])
def predict(loaded, arrays):
    return []
"""


def test_an_output_that_is_missing_is_named(tmp_path: Path) -> None:
    predictor = tmp_path / "short.py"
    predictor.write_text(SHORT)
    spec = replace(faulty_spec(tmp_path), predictor=predictor)
    with open_predictor(spec) as opened:
        with pytest.raises(AgentError, match=r"'predict': there is no output 'logits'; found \[\]"):
            opened.predict(BATCH)
        assert not opened.agent.alive


def test_a_signal_without_a_name_has_its_number(tmp_path: Path) -> None:
    code = "import os; os.kill(os.getpid(), 40)"
    ended = Launch((sys.executable, "-c", code), {})
    agent = start_agent(ended, PREDICTORS / "faulty.py", tmp_path / "log", TIMEOUT)
    with pytest.raises(AgentError, match="killed by signal 40; "):
        agent.request("hello")


def test_a_predictor_that_writes_to_its_standard_output_sends_nothing(tmp_path: Path) -> None:
    predictor = tmp_path / "loud.py"
    predictor.write_text(SHORT + "import os, subprocess\n" + LOUD)
    agent = start_agent(launch(), predictor, tmp_path / "log", TIMEOUT)
    assert agent.request("hello").facts["versions"] == {"faulty": "1.2.3"}
    agent.close()
    log = (tmp_path / "log").read_text()
    for writer in ("native", "child", "forked"):
        assert json.dumps({"type": writer}) in log


LOUD = """
import ctypes
libc = ctypes.CDLL(None)
libc.puts(b'{"type": "native"}')
libc.fflush(None)
subprocess.run(["echo", '{"type": "child"}'])
if os.fork() == 0:
    print('{"type": "forked"}', flush=True)
    os._exit(0)
os.wait()
"""


def test_energy_is_the_sum_of_its_counters() -> None:
    energy = Energy({"package-0": 3.0, "dram": 1.0}, {"package-0": 20.0, "dram": 2.5}, "")
    assert energy.total == 4.0
    assert energy.per_input(8) == 0.5
    assert energy.idle == 22.5


@pytest.mark.parametrize(
    ("joules", "idle", "missing"),
    [
        ({"package-0": -1.0, "dram": 9.0}, {}, "package-0 went backwards"),
        ({"package-0": 3.0}, {"package-0": -0.5}, "package-0 went backwards"),
        ({"package-0": 0.0, "dram": 0.0}, {}, "package-0, dram stands still"),
    ],
)
def test_energy_whose_counters_fall_or_stand_still_is_missing_and_ends_no_item(
    joules: dict[str, float], idle: dict[str, float], missing: str
) -> None:
    """An energy of 0 or less would meet any limit."""
    record = read_record(RunReply, RunReply(1, 0.0, 0, joules, idle, "")._asdict())
    energy = read_energy(record)
    assert energy.total is None
    assert missing in energy.missing


def test_energy_of_counters_of_which_one_is_still_is_told_by_the_others() -> None:
    record = RunReply(1, 0.0, 0, {"package-0": 3.0, "dram": 0.0}, {"package-0": 0.0}, "")
    assert read_energy(record) == Energy({"package-0": 3.0, "dram": 0.0}, {"package-0": 0.0}, "")


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (UsageReply(1, -1, 1, 1), "device_memory"),
        (TurnReply(1, DeviceBytes({"nvml": -1})), "nvml"),
        (TurnReply(1, None, (0.1, -0.1)), "event_times"),
        (IdleReply(-0.1), "cpu"),
        (RunReply(1, -0.1, 0), "bind_seconds"),
    ],
)
def test_an_amount_below_0_which_would_meet_any_limit_is_an_error(record: Any, name: str) -> None:
    with pytest.raises(ProtocolError, match=f"'{name}' is -"):
        read_record(type(record), record._asdict())


def test_memory_may_shrink_in_a_run() -> None:
    assert read_record(RunReply, RunReply(1, 0.0, -4096)._asdict()).grown == -4096


def test_a_wait_is_no_longer_than_what_it_is_a_part_of_but_for_a_tick() -> None:
    check_waited(0.001, 0.009)
    with pytest.raises(ProtocolError, match="it waited for a core for 500 s of 2 s"):
        check_waited(2.0, 500.0)


def test_energy_without_a_counter_is_none_and_never_zero() -> None:
    assert UNTOLD.total is None
    assert UNTOLD.per_input(8) is None
    assert UNTOLD.idle is None
    assert UNTOLD.missing


TOKENS = {
    "tokens": np.array([1.0, 2.0]),
    "token": np.array([1.0, 2.0, 3.0]),
    "token_wait": np.zeros(3),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token": None}, "no rows of float64"),
        (dict.fromkeys(TOKENS), "no rows of float64"),
        ({"token_wait": np.zeros(3, np.float32)}, "no rows of float64"),
        ({"token": np.zeros((3, 1))}, "no rows of float64"),
        ({"tokens": np.array([3.0])}, "not those of 2 calls"),
        ({"tokens": np.array([0.0, 3.0])}, "not those of 2 calls"),
        ({"tokens": np.array([1.5, 1.5])}, "not those of 2 calls"),
        ({"tokens": np.array([2.0, 2.0])}, "not those of 2 calls"),
        ({"token_wait": np.zeros(2)}, "not those of 2 calls"),
        ({"token": np.array([1.0, 2.0, np.inf])}, "outside of its call"),
        ({"token": np.array([np.nan, 2.0, 3.0])}, "outside of its call"),
        ({"token": np.array([1.5, 1.7, 3.0])}, "outside of its call"),
        ({"token": np.array([1.0, 3.0, 2.0])}, "before the last token"),
        ({"token_wait": np.array([0.0, np.nan, 0.0])}, "outside of its call"),
        ({"token_wait": np.array([0.0, 0.1, 1e9])}, "longer than until its token"),
    ],
)
def test_times_of_tokens_that_are_none_are_refused(change: dict[str, Any], message: str) -> None:
    calls = {"start": np.array([0.0, 2.0]), "end": np.array([1.0, 3.0])}
    assert take_tokens(as_sent({**TOKENS}), calls, generates=True) == TOKENS
    assert take_tokens({}, calls, generates=False) == {}
    rows = {name: row for name, row in {**TOKENS, **change}.items() if row is not None}
    with pytest.raises(ProtocolError, match=message):
        take_tokens(as_sent(rows), calls, generates=True)
