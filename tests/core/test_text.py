"""Texts from elsewhere, and the secrets in them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import ArtifactError, MlmsError
from pytest_mlms.core.text import (
    anonymous,
    encodable,
    find_control,
    redact,
    redact_all,
    seems_url,
    shortened,
    visible,
)
from tests.support.fileserver import serving
from tests.support.project import Project

CODES = st.integers(0, 0x10FFFF)
TEXTS = st.lists(CODES | st.integers(0, 0xFF)).map(lambda codes: "".join(map(chr, codes)))


def test_a_control_character_is_shown_as_its_escape() -> None:
    assert visible("a\x1b[2J\x9b\r\x00\ud800\u202e.") == r"a\x1b[2J\x9b\r\x00\ud800\u202e."
    assert visible("a\tb\nµ 模型 é") == "a\tb\nµ 模型 é"


def test_a_control_character_is_found() -> None:
    assert find_control("a\tb\n\x07") == "\x07"
    assert find_control("µ 模型") == ""


@given(TEXTS)
def test_any_text_is_fit_for_xml_and_utf_8(text: str) -> None:
    element = ElementTree.Element("a")
    element.text = shown = visible(text)
    assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == (shown or None)


@pytest.mark.parametrize(
    "text",
    [
        "postgres//x",
        "postgresql//host/d",
        "postgresq//host/d",
        "postgresql+psycopg//host/d",
        "postgresql:/host/d",
        "postgresql:host/d",
        "sqlite//h.sqlite",
        "file//h.sqlite",
        "db.example.org:5432/d",
        "joe:s3cret@host/d",
    ],
)
def test_a_mistyped_url_is_told_from_a_path(text: str) -> None:
    assert seems_url(text)
    assert not seems_url(f"./{text}")
    assert not seems_url(f"/home/{text}")


@pytest.mark.parametrize(
    "text",
    [
        "h.sqlite",
        "results//h.sqlite",
        "files//h.sqlite",
        "postgres/x",
        "~/a:b",
        "C:/h.sqlite",
        "../x//y",
        "",
    ],
)
def test_a_path_is_not_taken_for_a_url(text: str) -> None:
    assert not seems_url(text)


def test_a_lone_surrogate_is_escaped() -> None:
    assert encodable("a\ud800\x1b") == "a\\ud800\x1b"


def test_an_error_can_not_command_the_terminal() -> None:
    assert str(MlmsError("the layer \x1b]0;title\x07")) == r"the layer \x1b]0;title\x07"


@given(st.text(), st.integers(5, 30))
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= most
    beginning, _, end = short.partition(" … ")
    assert short == text or (text.startswith(beginning) and text.endswith(end))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://joe:s3cret@host/x", "https://***@host/x"),
        ("https://joe:p@ss:w@host/x", "https://***@host/x"),
        ("https://s3cret@host:8443/x", "https://***@host:8443/x"),
        (
            "https://h/x?X-Amz-Signature=s3cret&X-Amz-Date=1#f",
            "https://h/x?X-Amz-Signature=***&X-Amz-Date=***#f",
        ),
        ("url: /x?sig=s3cret (Caused by E)", "url: /x?sig=*** (Caused by E)"),
        ('GET "/x?token=s3%2Fcret" 200', 'GET "/x?token=***" 200'),
        ("--extra-index-url=https://u:s3cret@h/simple", "--extra-index-url=https://***@h/simple"),
        ("a @ git+https://s3cret@h/a.git@v1#egg=a", "a @ git+https://***@h/a.git@v1#egg=a"),
        (
            "(https://h/x?key=s3cret), (https://u:s3cret@h)",
            "(https://h/x?key=***), (https://***@h)",
        ),
        (
            "--mlms-history=postgresql+psycopg://u:s3/cr?e#t@h:5432/d",
            "--mlms-history=postgresql+psycopg://***@h:5432/d",
        ),
        ("postgresql://h/d?user=u&password=s3cret", "postgresql://h/d?user=***&password=***"),
        ("https://h/x?a[b]=s3cret", "https://h/x?a[b]=***"),
        ("https://h/x?s3cret and", "https://h/x?*** and"),
        ("https://h/x?a=1&s3cret#top", "https://h/x?a=***&***#top"),
        ("https://h/x#access_token=s3cret&a=b", "https://h/x#access_token=***&a=***"),
        ("http://u:s3/cret@h/x?k=v", "http://***@h/x?k=***"),
        ("http://u:s3?cret@h/x", "http://***@h/x"),
        ("run --api-token s3cret -v", "run --api-token *** -v"),
        ("run --password=s3cret", "run --password=***"),
        ("Authorization: Bearer s3cret.x, next", "Authorization: Bearer ***, next"),
        ("{'authorization': 'Basic s3cret='}", "{'authorization': 'Basic ***'}"),
        ("sent bearer s3cret-99", "sent bearer ***"),
        ("HF_TOKEN=s3cret is no token", "HF_TOKEN=*** is no token"),
        ("AWS_SECRET_ACCESS_KEY='s3cret'", "AWS_SECRET_ACCESS_KEY='***'"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "is it there? write name=value",
        "mail me@example.com about https://host/path",
        "https://host/@scope/package",
        "why? because a=b & c=d",
        "reproduce: pytest 'm.yaml::test_accuracy[a-b]'",
        "unknown token: '<pad>', 12 tokens, --tokens 5, max_tokens=7",
        "leave the secret out; MLMS_PUSH_TOKEN has the token",
        "--mlms-push-token-file /run/token --keys a",
        "a @ https://h/a-1.whl#sha256=0f and git+https://h/a.git@v1#egg=a&subdirectory=b",
        "https://[::1]:8080/a@b and https://h:80/@scope/x#L10",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert redact(text) == text


def test_all_texts_of_a_value_are_redacted() -> None:
    value = {"a": ["https://u:p@h", 1.5, None], "b": {"c": "/x?k=v"}, "https://u:p@h": 1}
    shown = {"a": ["https://***@h", 1.5, None], "b": {"c": "/x?k=***"}, "https://***@h": 1}
    assert redact_all(value) == shown


def test_the_word_behind_an_option_of_a_secret_is_hidden() -> None:
    command = ["pytest", "--api-token", "s3cret", "--mlms-push-token-file", "file", "-v"]
    assert redact_all(command) == [*command[:2], "***", *command[3:]]


def test_the_text_of_an_error_is_redacted() -> None:
    assert str(ArtifactError("m.yaml:1: https://u:p@h/x")) == "m.yaml:1: https://***@h/x"


def written_by(folder: Path) -> str:
    texts = []
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".jsonl", ".xml", ".json", ".log"):
            texts.append(path.read_text())
    return "\n".join(texts)


@pytest.mark.parametrize("page", ["/none.bin", "/page", "/data.bin", "refused"])
def test_no_output_of_a_run_has_the_secrets_of_an_address(project: Project, page: str) -> None:
    with serving() as server:
        url = server.url(page) if page.startswith("/") else "http://127.0.0.1:9/x"
        url = url.replace("http://", "http://joe:s3cret@") + "?X-Amz-Signature=s3cret&k=s3cret"
        project.edit("graph: digits_cnn.onnx", f'graph: "{url}"')
        options = [
            "--junitxml=junit.xml",
            "--mlms-cache=cache",
            "--log-level=DEBUG",
            "--log-file=run.log",
            "--log-file-level=DEBUG",
            "--log-cli-level=DEBUG",
            "--benchmark-disable",
            "--mlms-benchmark-json=bench.json",
            "--tb=long",
            "--showlocals",
            "-rA",
            "-kaccuracy",
        ]
        result = project.run(*options)
    output = "\n".join([*result.outlines, *result.errlines])
    assert result.ret == 1
    assert "X-Amz-Signature=***" in output
    assert "***@" in output
    assert "s3cret" not in output
    assert "s3cret" not in written_by(project.path)


@pytest.mark.slow
def test_a_stack_that_can_not_be_made_shows_no_secrets(project: Project) -> None:
    stack = "onnxruntime @ http://joe:s3cret@127.0.0.1:9/onnxruntime-1-py3-none-any.whl?k=s3cret"
    result = project.run(
        f"--mlms-stack={stack}", "-kaccuracy", "--mlms-cache=cache", "--junitxml=junit.xml", "-rA"
    )
    output = "\n".join([*result.outlines, *result.errlines])
    assert result.ret == 1
    assert "joe:" not in output
    assert "s3cret" not in output
    assert "s3cret" not in written_by(project.path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Load from /home/joe/my/x.onnx failed:Protobuf", "Load from PATH failed:Protobuf"),
        ("'/home/joe/my model/x.onnx' is bad", "'PATH' is bad"),
        ("Name:'/model/layer.0/Resize' Status", "Name:'/model/layer.0/Resize' Status"),
        ("node /layer1/layer1.0/conv1/Conv", "node /layer1/layer1.0/conv1/Conv"),
        ("node conv/BiasAdd:0, 12 tokens/s, B/A", "node conv/BiasAdd:0, 12 tokens/s, B/A"),
        ("/src/onnxruntime/core/model.cc:146 Model", "model.cc:146 Model"),
        ("cannot open /usr/lib/x86_64/libcudnn.so.9", "cannot open libcudnn.so.9"),
        ("numpy @ file:///home/joe/numpy-1.0.whl", "numpy @ PATH"),
        ("C:\\Users\\Joe\\m.onnx: no", "PATH: no"),
        ("~/models/m.onnx:3", "PATH:3"),
        ("models/own/m.yaml:95: x", "PATH:95: x"),
        ("in /tmp", "in PATH"),
        ("vm-7 said, vm-71", "HOST said, vm-71"),
        ("https://nexus.corp/x and https://pypi.org/x", "ADDRESS and https://pypi.org/x"),
        ("https://joe:pw@nexus.corp/x", "ADDRESS"),
        ("joe@build-7.corp.example: refused", "ADDRESS: refused"),
        ("to 203.0.113.7:5432, 10.1.2.3", "to ADDRESS, ADDRESS"),
        ("cuDNN 9.1.0.70, a @ b, layer1.0@1", "cuDNN 9.1.0.70, a @ b, layer1.0@1"),
    ],
)
def test_what_is_for_strangers_has_neither_paths_nor_hosts(text: str, shown: str) -> None:
    assert anonymous(text, "vm-7") == shown


def test_without_a_host_no_word_is_replaced() -> None:
    assert anonymous("a vm-7") == "a vm-7"


@pytest.mark.parametrize(
    "text",
    [
        *("-/", "/", "'/", "'/a", "a.b/", "/.", ".a", "-", "postgres://", "?a=", "'a", "a:/", "~/"),
        *("a@", "a-", "a.", "10.1.", "a@a.", "1.1.1.1:"),
        *("://", "http://a:", "#a", "&", "://a?", "--", "--token", "token=", "bearer ", "cookie:"),
    ],
)
def test_a_long_text_of_a_stranger_is_soon_read(text: str) -> None:
    # Where each part of it were tried as a place with each other one, this would take hours.
    assert anonymous(text * ((1 << 16) // len(text)))
