"""Pages that use models: from the first page of a fresh portal to answers for one's own input."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import wave
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.browser import check_accessibility, open_browser, overflow
from tests.support.portals import Answer, Portal, serving
from tests.support.project import HANG_GUARD, copy_digits
from tests.support.used_models import (
    write_box_model,
    write_mask_model,
    write_sound_model,
    write_sum_model,
    write_text_model,
)

HOSTILE = "<svg onload=alert(1)>\"'&{{7*7}}.png"
STACKS = """
second: {framework: onnxruntime, interpreter: current}
third: {framework: onnxruntime, interpreter: current}
absent: {framework: onnxruntime, requirements: [onnxruntime==0.0.1]}
"""
DIGITS = "image-classification"
HERE, SECOND, ABSENT = (f"{name} digits/digits.yaml" for name in ("here", "second", "absent"))

File = tuple[str, bytes]


def picture(width: int = 8, height: int = 8, mode: str = "L") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height), "white").save(file, "png")
    return file.getvalue()


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("used") / "manifests"
    folder.mkdir()
    copy_digits(folder / "digits")
    (folder / "stacks.yaml").write_text(STACKS)
    for name, write in (
        ("boxes", write_box_model),
        ("masks", write_mask_model),
        ("text", write_text_model),
        ("sum", write_sum_model),
    ):
        (folder / name).mkdir()
        write(folder / name)
    return folder


@pytest.fixture(scope="module")
def portal(manifests: Path) -> Iterator[Portal]:
    """A fresh portal on loopback, which has no run and no token."""
    results = manifests.parent / "results"
    results.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLMS_LOCKS", str(manifests.parent / "locks"))
        with serving(results, "--allow-predict", f"--manifests={manifests}", token=None) as made:
            yield made


def ask(portal: Portal, *sides: str, task: str = DIGITS, **fields: str | File) -> Answer:
    """Send the form; a field ``input_a`` is input.a, and a file is its name and its content."""
    given: list[tuple[str, str | File]] = [("task", task), *(("side", side) for side in sides)]
    given += [(name.replace("_", "."), value) for name, value in fields.items()]
    body = b""
    for name, value in given:
        quoted = ""
        content: str | bytes
        if isinstance(value, tuple):
            file, content = value
            quoted = f'; filename="{file.translate({34: "%22", 92: chr(92) * 2})}"'
        else:
            content = value
        data = content.encode() if isinstance(content, str) else content
        head = f'--edge\r\nContent-Disposition: form-data; name="{name}"{quoted}\r\n\r\n'
        body += head.encode() + data + b"\r\n"
    kind = "multipart/form-data; boundary=edge"
    return portal.post("/predict", body + b"--edge--\r\n", Content_Type=kind, Origin=portal.origin)


def sides_of(answer: Answer) -> list[str]:
    """Return the text of each model's part of the page."""
    parts = re.findall(r'<article class="item[^>]*>(.*?)</article>', answer.text, re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", part)).split()) for part in parts]


def commands_of(answer: Answer) -> list[str]:
    found = re.search(r"on the command line</h2>.*?<pre>(.*?)</pre>", answer.text, re.DOTALL)
    return unescape(found[1]).splitlines() if found else []


def problem_of(answer: Answer) -> str:
    assert answer.status == 400, answer.text
    found = re.search(r'role="alert">(.*?)</p>', answer.text)
    assert found, answer.text
    return unescape(found[1])


def test_the_first_page_and_that_of_a_model_lead_to_the_form(portal: Portal) -> None:
    assert 'href="/predict"' in portal.get("/").text
    assert f'href="/predict?task={DIGITS}"' in portal.get("/predict").text
    link = re.search(r'href="(/predict\?manifest=[^"]*)"', portal.get("/models/digits-cnn").text)
    assert link
    form = portal.get(unescape(link[1])).text
    assert f'value="{HERE}" checked' in form
    assert f'value="{SECOND}">' in form
    assert set(re.findall(r"(\w+) <small>\(not made yet\)", form)) == {"absent"}


def test_stacks_answer_side_by_side_with_times_and_an_error_is_beside_answers(
    portal: Portal,
) -> None:
    answer = ask(portal, HERE, SECOND, ABSENT, input=("seven.png", picture()))
    assert answer.status == 200, answer.text
    here, second, absent = sides_of(answer)
    for side in (here, second):
        assert re.search(r"digits-cnn on \w+ \d\S* .s a call onnxruntime \d\S+, cpu", side), side
        assert len(re.findall(r"\d+\.\d %", side)) == 5
    assert here.partition("cpu")[2] == second.partition("cpu")[2]
    assert "stack absent has not been created" in absent
    assert re.search(r"All 2 answer \d\.", answer.text)
    assert answer.text.count("data:image/png;base64,") == 1
    assert answer.text.count('class="bar"') == 10


def test_the_command_that_is_shown_prints_the_same_answer(portal: Portal, manifests: Path) -> None:
    (manifests / "seven.png").write_bytes(picture())
    for fields in ({"input": ("C:\\my\\seven.png", picture())}, {"element": "3"}):
        answer = ask(portal, HERE, **fields)
        (command,) = commands_of(answer)
        printed = printed_by(command, manifests)
        shares = re.findall(r"(\S+) +(\d+\.\d %)", printed)
        assert len(shares) == 5
        assert re.findall(r"(\S+) (\d+\.\d %)", sides_of(answer)[0]) == shares


def printed_by(command: str, folder: Path) -> str:
    mlms = f"{shlex.quote(sys.executable)} -m pytest_mlms"
    words = re.sub(r"(^|\| )mlms ", rf"\g<1>{mlms} ", command)
    return subprocess.run(
        ["bash", "-c", words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
    ).stdout


@pytest.mark.parametrize(
    "text", ["the cat sat", "-1", "-", "cat.txt", "a 'cat'\nsat\x1b", "ca\u202et"]
)
def test_a_text_is_answered_and_its_command_runs_as_printed(
    portal: Portal, manifests: Path, text: str
) -> None:
    answer = ask(
        portal, "here text/made.yaml", task="text-classification", input=text.replace("\n", "\r\n")
    )
    best = re.search(r"(about a \w+) (\d+\.\d %)", sides_of(answer)[0])
    assert best
    command = unescape(re.search(r"<pre>(.*?)</pre>", answer.text, re.DOTALL)[1])  # type: ignore[index]
    assert re.search(rf"{best[1]} +{best[2]}", printed_by(command, manifests))


def test_a_text_that_no_command_line_has_room_for_is_answered_at_once(portal: Portal) -> None:
    text = "\x1b cat" * 100_000
    answer = ask(portal, "here text/made.yaml", task="text-classification", input=text)
    assert "about a cat" in sides_of(answer)[0]
    assert (commands_of(answer), len(answer.body) < 100_000) == ([], True)


def test_boxes_are_drawn_on_the_picture_and_several_inputs_have_fields_of_their_own(
    portal: Portal,
) -> None:
    boxes = ask(
        portal,
        "here boxes/made.yaml",
        task="object-detection",
        input=("a.png", picture(200, 100, "RGB")),
    )
    assert "1 object" in sides_of(boxes)[0]
    assert 'aria-label="1 object: plate 0.75"' in boxes.text
    form = portal.get("/predict?task=adding").text
    assert 'name="input.a"' in form
    array = io.BytesIO()
    np.save(array, np.full(3, 2, np.float32))
    side = "here sum/made.yaml"
    found = ask(portal, side, task="adding", input_a="1 -2 3", input_b=("b.npy", array.getvalue()))
    assert "float32 3 3 0 5" in sides_of(found)[0]
    assert commands_of(found) == ["mlms predict --stack here sum/made.yaml 'a=1 -2 3' b=b.npy"]


BAD_FORMS: list[tuple[Mapping[str, Any], str]] = [
    ({}, "There is no input: choose a file with a picture."),
    ({"input": ("", b"")}, "There is no input: choose a file with a picture."),
    ({"input": "a cat"}, "A text is no picture: choose a file."),
    ({"input": ("a.png", b"x"), "element": "1"}, "leave one out"),
    ({"element": "-1"}, "'-1' is no number of an element"),
    ({"element": "9" * 10}, "is no number of an element"),
]


@pytest.mark.parametrize(("fields", "problem"), BAD_FORMS)
def test_a_form_that_asks_for_nothing_possible_comes_back_with_advice(
    portal: Portal, fields: Mapping[str, Any], problem: str
) -> None:
    answer = ask(portal, SECOND, **fields)
    assert problem in problem_of(answer)
    assert f'value="{SECOND}" checked' in answer.text, "what was ticked is so still"
    assert f'value="{HERE}">' in answer.text


def test_no_model_five_and_unknown_ones_are_refused(portal: Portal) -> None:
    file = ("a.png", picture())
    assert "No model is chosen" in problem_of(ask(portal, input=file))
    five = [f"s{number} digits/digits.yaml" for number in range(5)]
    assert "there is no model and stack" in problem_of(ask(portal, *five, input=file))
    assert "there is no model" in problem_of(ask(portal, "here boxes/made.yaml", input=file))
    assert "there is no model" in problem_of(ask(portal, "here ../secret.yaml", input=file))
    assert ask(portal, HERE, task="nothing", input=file).status == 404
    assert portal.get("/predict?task=nothing").status == 404
    assert portal.get("/predict?manifest=../secret.yaml").status == 404


def test_five_models_and_stacks_are_too_many(tmp_path: Path, manifests: Path) -> None:
    more = "".join(f"s{n}: {{framework: onnxruntime, interpreter: current}}\n" for n in range(5))
    copy_digits(tmp_path / "manifests")
    (tmp_path / "manifests" / "stacks.yaml").write_text(more)
    (tmp_path / "results").mkdir()
    folder = f"--manifests={tmp_path / 'manifests'}"
    with serving(tmp_path / "results", "--allow-predict", folder, token=None) as portal:
        sides = [f"s{number} digits.yaml" for number in range(5)]
        found = problem_of(ask(portal, *sides, input=("a.png", picture())))
    assert found == "5 models and stacks are chosen: tick one to 4."


def bomb(side: int) -> bytes:
    """Return a picture of a few kilobytes with side x side pixels."""
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "png")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no picture", "are not an image of"),
        (b"<svg onload=alert(1)>", "are not an image of"),
        (picture(300, 300)[:200], "digits.yaml:"),
        (bomb(15_000), "pixels"),
        (b"", "0 bytes"),
    ],
    ids=["text", "svg", "cut off", "bomb", "empty"],
)
def test_a_file_that_is_no_picture_is_told_and_the_next_one_is_answered(
    portal: Portal, content: bytes, problem: str
) -> None:
    answer = ask(portal, HERE, SECOND, input=("a.png", content))
    assert answer.status == 400
    for side in sides_of(answer):
        assert problem in side
        assert "Traceback" not in side
    assert "data:" not in answer.text.partition("<main")[2]
    assert ask(portal, HERE, input=("a.png", picture())).status == 200


def test_a_hundred_million_pixels_are_shown_as_a_small_picture(portal: Portal) -> None:
    answer = ask(portal, HERE, input=("a.png", bomb(10_000)))
    assert answer.status == 200
    assert len(answer.body) < 100_000


def test_arrays_of_a_wrong_shape_and_elements_beyond_the_end_are_told(portal: Portal) -> None:
    array = io.BytesIO()
    np.save(array, np.zeros((5, 5)))
    file = ("b.npy", array.getvalue())
    (side,) = sides_of(ask(portal, "here sum/made.yaml", task="adding", input_a=file, input_b=file))
    assert "input 'a'" in side
    (side,) = sides_of(ask(portal, HERE, element="123456"))
    assert "write a number from 0 to " in side


def test_names_of_strangers_and_texts_are_escaped(portal: Portal, manifests: Path) -> None:
    (manifests / HOSTILE).write_bytes(picture())
    answer = ask(portal, HERE, input=(HOSTILE, picture()))
    assert answer.status == 200
    assert "<svg onload" not in answer.text
    assert "&lt;svg onload" in answer.text
    assert re.search(r"\d+\.\d %", printed_by(commands_of(answer)[0], manifests))
    text = ask(portal, "here text/made.yaml", task="text-classification", input=HOSTILE)
    assert "<svg onload" not in text.text


def test_what_a_file_tells_beside_its_pixels_is_not_shown_and_nothing_is_kept(
    portal: Portal, manifests: Path
) -> None:
    before = {path for path in manifests.parent.rglob("*") if "locks" not in path.parts}
    answer = ask(portal, HERE, input=("a.png", picture() + b"<!-- secret -->"))
    assert answer.status == 200
    assert "secret" not in answer.text
    assert {path for path in manifests.parent.rglob("*") if "locks" not in path.parts} == before


def test_a_portal_that_is_not_allowed_has_no_such_page(tmp_path: Path, manifests: Path) -> None:
    with serving(tmp_path, f"--manifests={manifests}", token=None) as portal:
        assert portal.get("/predict").status == 404
        for path in ("/", "/models/digits-cnn"):
            assert "/predict" not in portal.get(path).text
        assert ask(portal, HERE, input=("a.png", picture())).status == 403


def write_tone(path: Path) -> Path:
    """Write half a second of a tone."""
    samples = 20_000 * np.sin(np.arange(4000))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


def opened(browser: Any, width: int, scripts: bool = True, scheme: str = "light") -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, java_script_enabled=scripts, color_scheme=scheme
    )
    context.set_default_timeout(1000 * HANG_GUARD)
    return context.new_page()


def photograph(folder: Path) -> Path:
    """Write a picture of a light spot on a dark ground."""
    down, across = np.mgrid[:300, :400] / 300
    spot = np.exp(-20 * ((down - 0.5) ** 2 + (across - 0.66) ** 2))
    pixels = np.stack([255 * spot, 160 * spot + 40 * across, 90 + 100 * down], axis=-1)
    path = folder / "spot.png"
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
@pytest.mark.parametrize("width", [1280, 400])
def test_four_clicks_lead_from_the_first_page_to_an_answer_for_ones_own_picture(
    portal: Portal, width: int, scripts: bool, tmp_path: Path
) -> None:
    with open_browser() as browser:
        page = opened(browser, width, scripts)
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.goto(portal.url)
        clicks = 0

        def click(target: Any) -> None:
            nonlocal clicks
            clicks += 1
            target.click()

        def look(name: str) -> None:
            page.screenshot(path=str(tmp_path / f"{name}-{width}.png"), full_page=True)
            assert overflow(page) <= 0, name
            if scripts:
                check_accessibility(page)

        look("first")
        click(page.get_by_role("link", name="predict", exact=True))
        look("tasks")
        click(page.get_by_role("link", name="object-detection"))
        look("form")
        with page.expect_file_chooser() as chooser:
            click(page.locator("input[type=file]"))
        chooser.value.set_files(photograph(tmp_path))
        click(page.get_by_role("button", name="Predict"))
        page.get_by_role("heading", name="made on here").wait_for()
        assert clicks == 4
        assert "plate" in page.locator(".sides").inner_text()
        assert page.locator("svg.picture image").first.bounding_box()["width"] > 100
        look("answers")
        assert not [text for text in refused if "Content Security Policy" in text]


@pytest.mark.slow
def test_the_keyboard_alone_is_enough(portal: Portal, tmp_path: Path) -> None:
    with open_browser() as browser:
        page = opened(browser, 1280)
        page.goto(portal.url)

        def tab_to(selector: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                    return
            raise AssertionError(f"{selector} is not reached")

        tab_to("a[href='/predict']")
        page.keyboard.press("Enter")
        page.wait_for_url("**/predict")
        tab_to(f"a[href$='{DIGITS}']")
        page.keyboard.press("Enter")
        page.wait_for_url("**/predict?task=*")
        tab_to(f"[value='{SECOND}']")
        page.keyboard.press("Space")
        tab_to("input[type=file]")
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Enter")
        chooser.value.set_files(photograph(tmp_path))
        tab_to("form.predict button")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="digits-cnn on second").wait_for()
        assert page.locator(".sides article").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("task", [DIGITS, "object-detection", "semantic-segmentation"])
def test_four_answers_fit_beside_each_other_and_one_may_be_an_error(
    portal: Portal, task: str, width: int, scheme: str, tmp_path: Path
) -> None:
    with open_browser() as browser:
        page = opened(browser, width, scheme=scheme)
        page.goto(f"{portal.url}predict?task={task}")
        for choice in page.get_by_role("checkbox").all():
            choice.check()
        page.set_input_files("input[type=file]", photograph(tmp_path))
        page.click("form.predict button")
        page.get_by_role("heading", name="on absent").wait_for()
        page.screenshot(path=str(tmp_path / f"{task}-{width}-{scheme}.png"), full_page=True)
        assert overflow(page) <= 0
        check_accessibility(page)
        boxes = [one.bounding_box() for one in page.locator(".sides article").all()]
        assert len(boxes) == 4
        are_beside = len({round(box["y"]) for box in boxes}) == 1
        assert are_beside == (width == 1280)
        drawn = page.locator(".sides svg.picture").all()
        assert len(drawn) == (0 if task == DIGITS else 3)
        assert all(picture.bounding_box()["width"] > 100 for picture in drawn)
        ground, ink = page.evaluate(
            "(b => [b.backgroundColor, b.color])(getComputedStyle(document.body))"
        )
        assert (brightness(ground) < brightness(ink)) == (scheme == "dark")


def brightness(colour: str) -> int:
    """Return the sum of red, green and blue of a colour of CSS."""
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


@pytest.mark.slow
def test_a_sound_is_played_from_the_page_itself(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "manifests").mkdir()
    write_sound_model(tmp_path / "manifests")
    arguments = ("--allow-predict", f"--manifests={tmp_path / 'manifests'}")
    with serving(tmp_path / "results", *arguments, token=None) as portal, open_browser() as browser:
        page = opened(browser, 400)
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.goto(f"{portal.url}predict?task=loudness")
        page.set_input_files("input[type=file]", write_tone(tmp_path / "tone.wav"))
        page.click("form.predict button")
        page.locator("audio").wait_for()
        page.wait_for_function("document.querySelector('audio').readyState >= 1")
        assert page.evaluate("document.querySelector('audio').duration") == pytest.approx(0.5)
        check_accessibility(page)
        assert refused == []
