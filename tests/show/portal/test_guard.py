"""The portal's guard, asked by a real server on loopback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from pytest_mlms.show.portal.addresses import ListenAddress
from pytest_mlms.show.portal.guard import Guard
from pytest_mlms.show.portal.settings import PortalSettings
from pytest_mlms.show.portal.tokens import Token, Tokens
from tests.support.histories import item_line, run_name, write_lines, write_run
from tests.support.portals import TOKEN, Portal, serving

FORM = "application/x-www-form-urlencoded"
SHOWN_PAGES = ("/login", "/", "/nowhere", "/api/v1/runs", "/static/portal.css")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, and with files around it that no request may reach."""
    folder = tmp_path_factory.mktemp("portal") / "results"
    run = write_run(folder, 0)
    (folder / "secret.txt").write_text("secret of the folder")
    (folder.parent / "secret.txt").write_text("secret of the machine")
    items = run / "items" / "one"
    items.mkdir(parents=True)
    (items / "page.html").write_text("<script>alert(document.domain)</script>")
    (items / "page.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (items / "table.csv").write_text("a,b\n")
    (items / "link.txt").symlink_to(folder.parent / "secret.txt")
    (run / "items" / "outside").symlink_to(folder.parent)
    artifacts = {
        "page.html": "items/one/page.html",
        "page.svg": "items/one/page.svg",
        "table.csv": "items/one/table.csv",
        "linked": "items/one/link.txt",
        "below a link": "items/outside/secret.txt",
        "up": "items/../../secret.txt",
        "absolute": str(folder.parent / "secret.txt"),
        "results": "results.jsonl",
    }
    write_lines(run, [item_line(0, artifacts=artifacts)])
    (folder / "latest").symlink_to(run.name)
    (folder / "linked").symlink_to(folder.parent)
    return folder


@pytest.fixture(scope="module")
def portal(results: Path) -> Iterator[Portal]:
    with serving(results) as made:
        yield made


def artifact(name: str) -> str:
    return f"/api/v1/runs/{run_name(0)}/items/0/artifacts/{name}"


def log_in(portal: Portal, token: str = TOKEN, **headers: str) -> str:
    """Log in as a browser does; return the header of the cookie."""
    body = urlencode({"token": token, "next": "/runs"})
    headers = {"Origin": portal.origin, "Cookie": "", **headers}
    answer = portal.post("/login", body, Content_Type=FORM, **headers)
    assert answer.status == 303
    return str(answer.headers["Set-Cookie"])


def test_a_program_without_a_token_is_refused(portal: Portal) -> None:
    for header in ("", "Bearer wrong-token-of-nobody", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        answer = portal.get("/api/v1/runs", Authorization=header)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "token" in answer.json["detail"]


def test_a_program_with_a_token_is_answered(portal: Portal) -> None:
    assert portal.get("/api/v1/runs").status == 200


def test_a_browser_without_a_token_is_led_to_the_form_and_back(portal: Portal) -> None:
    answer = portal.get("/runs?page=2", Cookie="mlms_portal=1.2")
    assert answer.status == 303
    assert answer.headers["Location"] == "/login?next=/runs%3Fpage%3D2"
    form = portal.get(answer.headers["Location"], Cookie="")
    assert 'name="next" value="/runs?page=2"' in form.text


def test_a_session_opens_the_portal_and_scripts_cannot_read_it(portal: Portal) -> None:
    cookie = log_in(portal)
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert portal.get("/api/v1/runs", Cookie=cookie.partition(";")[0]).status == 200


def test_a_session_behind_tls_is_never_sent_in_the_clear(portal: Portal) -> None:
    host = "127.0.0.1"
    cookie = log_in(portal, Origin=f"https://{host}", Host=host)
    assert "Secure" in cookie


def test_a_session_is_void_once_its_browser_has_logged_out(results: Path) -> None:
    with serving(results) as portal:
        cookie = log_in(portal).partition(";")[0]
        portal.post("/logout", b"", Cookie=cookie, Origin=portal.origin)
        assert portal.get("/api/v1/runs", Cookie=cookie).status == 401


def test_a_client_that_leaves_amid_a_form_is_no_error_of_the_portal(results: Path) -> None:
    head = f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\n"
    with serving(results) as portal:
        with portal.connect() as connection:
            connection.sendall(f"{head}Content-Length: 9\r\n\r\nx".encode())
        assert portal.get("/login").status == 200
        assert portal.end()[2] == ""


def test_a_session_that_was_changed_is_refused(portal: Portal) -> None:
    name, _, value = log_in(portal).partition(";")[0].partition("=")
    ends, _, signature = value.partition(".")
    for changed in (f"{int(ends) + 1}.{signature}", f"{ends}.{signature[:-1]}", ends, "."):
        assert portal.get("/api/v1/runs", Cookie=f"{name}={changed}").status == 401


def test_a_wrong_token_shows_the_form_again(portal: Portal) -> None:
    body = urlencode({"token": "wrong-token-of-nobody"})
    answer = portal.post("/login", body, Content_Type=FORM, Origin=portal.origin)
    assert answer.status == 401
    assert "none of the portal" in answer.text
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("place", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_logging_in_leads_to_no_other_site(portal: Portal, place: str) -> None:
    body = urlencode({"token": TOKEN, "next": place})
    answer = portal.post("/login", body, Content_Type=FORM, Origin=portal.origin)
    assert answer.headers["Location"] == "/"


FOREIGN_HOSTS = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""]
MALFORMED_HOSTS = [
    "127.0.0.1/login?",
    "127.0.0.1/login#",
    "localhost\\login",
    "u@localhost",
    "[::1",
]
MALFORMED_HOSTS += [
    "localhost:8765/static/",
    "localhost:",
    "localhost:80:80",
    "127.0.0.1 x",
    "[::1]x",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS + MALFORMED_HOSTS)
def test_a_name_that_is_not_the_portals_is_refused(portal: Portal, host: str) -> None:
    assert portal.get("/api/v1/runs", Host=host).status == 421


@pytest.mark.parametrize(("method", "path"), [("GET", "/runs"), ("POST", "/api/v1/runs")])
def test_the_path_of_the_request_alone_decides(
    method: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What versions of starlette below 1.0.1 make of a Host "127.0.0.1/login?" (CVE-2026-48710).
    monkeypatch.setattr(Request, "url", URL(f"http://127.0.0.1/login?{path}"))
    tokens = Tokens((Token(TOKEN),))
    settings = PortalSettings(tmp_path, ListenAddress("127.0.0.1", 8765), tokens)
    headers = [(b"host", b"127.0.0.1"), (b"origin", b"http://127.0.0.1")]
    scope = {"type": "http", "method": method, "path": path, "query_string": b""}
    sent: list[Message] = []

    async def passed_on(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the guard let it through")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    guard = Guard(passed_on, settings)
    asyncio.run(guard({**scope, "headers": headers}, receive, send))
    assert sent[0]["status"] == (303 if method == "GET" else 401)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8765", "127.0.0.1:1", "[::1]:8765"])
def test_the_portals_own_names_are_answered(portal: Portal, host: str) -> None:
    assert portal.get("/api/v1/runs", Host=host).status == 200


CROSS_SITE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {},  # a cookie, and no browser that names the site
]


@pytest.mark.parametrize("headers", CROSS_SITE)
def test_a_form_of_another_site_changes_nothing(portal: Portal, headers: dict[str, str]) -> None:
    cookie = log_in(portal).partition(";")[0]
    for path in ("/api/v1/runs", "/logout", "/login", "/evaluations"):
        answer = portal.post(path, b"", Cookie=cookie, **headers)
        assert answer.status == 403
        assert "another site" in answer.text


def test_a_form_of_the_portal_itself_is_taken(portal: Portal) -> None:
    cookie = log_in(portal).partition(";")[0]
    answer = portal.post("/logout", b"", Cookie=cookie, Origin=portal.origin)
    assert answer.status == 303
    cookie = log_in(portal).partition(";")[0]
    answer = portal.post("/logout", b"", Cookie=cookie, Sec_Fetch_Site="same-origin")
    assert answer.status == 303


@pytest.mark.parametrize("path", SHOWN_PAGES)
def test_every_answer_has_the_headers_that_hold_browsers_back(portal: Portal, path: str) -> None:
    headers = portal.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    assert "Server" not in headers


@pytest.mark.parametrize("name", ["page.html", "page.svg"])
def test_an_artifact_with_scripts_is_never_a_page(portal: Portal, name: str) -> None:
    answer = portal.get(artifact(name))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox;")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_table_is_shown_as_text(portal: Portal) -> None:
    answer = portal.get(artifact("table.csv"))
    assert answer.text == "a,b\n"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("name", ["linked", "below%20a%20link", "up", "absolute", "results"])
def test_an_artifact_that_leads_out_of_its_run_is_not_there(portal: Portal, name: str) -> None:
    answer = portal.get(artifact(name))
    assert answer.status == 404
    assert "secret" not in answer.text


PATHS = [
    "/../secret.txt",
    "/static/../../secret.txt",
    "/static/%2e%2e/%2e%2e/app.py",
    "/static//etc/passwd",
    "/api/v1/runs/../items/0/artifacts/secret.txt",
    "/api/v1/runs/%2e%2e/items/0/artifacts/secret.txt",
    "/api/v1/runs/linked/items/0/artifacts/secret.txt",
    artifact("..%2f..%2f..%2f..%2fsecret.txt"),
    artifact("items/one/page.html"),
    artifact("%00"),
]


NUMBERS = [f"/runs/{run_name(0)}/items/%s", artifact("x").replace("/0/", "/%s/"), "/series/%s"]


@pytest.mark.parametrize("number", ["9" * 30, "-1", "x", "%00"])
@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_that_nothing_has_is_refused(portal: Portal, path: str, number: str) -> None:
    assert portal.get(path % number).status in (404, 422)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_out_of_the_runs_is_not_there(portal: Portal, path: str) -> None:
    answer = portal.get(path)
    assert answer.status == 404
    assert "secret of" not in answer.text


def test_a_large_request_is_refused_before_it_is_read(portal: Portal) -> None:
    headers = {"Content-Type": FORM, "Content-Length": "100000000"}
    answer = portal.request("POST", "/login", b"", headers)
    assert answer.status == 413


def test_a_large_request_of_unknown_length_is_not_read_to_its_end(portal: Portal) -> None:
    with portal.connect() as connection:
        head = f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        connection.sendall(chunk * 2)
        assert re.match(rb"HTTP/1.1 413 ", connection.recv(4096))


def test_a_request_that_is_no_http_ends_its_connection(portal: Portal) -> None:
    with portal.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
        assert b" 400 " in connection.recv(4096)


def test_a_client_that_goes_away_leaves_the_portal_answering(portal: Portal) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"
    for request in (b"GET /api", head):
        with portal.connect() as connection:
            connection.sendall(request)
    assert portal.get("/api/v1/runs").status == 200
    assert portal.process.poll() is None


def test_without_a_token_pages_are_shown_and_nothing_changes(results: Path) -> None:
    with serving(results, token=None) as portal:
        assert portal.get("/api/v1/runs").status == 200
        assert portal.post("/api/v1/runs", b"").status == 403


PUSHING = "a-token-that-may-push-4d1c"
READING = "a-token-that-may-read-7b2e"
RUNNING = "a-token-that-may-run-0a9f"


@pytest.fixture(scope="module")
def divided(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """A portal whose tokens are for a purpose each."""
    folder = tmp_path_factory.mktemp("divided")
    file = folder / "tokens"
    file.write_text(f"push:{PUSHING}\nread:{READING}\nrun:{RUNNING}\n")
    arguments = (f"--token-file={file}", "--allow-run", f"--manifests={folder}")
    with serving(results, *arguments, token=None) as made:
        yield made


ALLOWED = [("GET", "/api/v1/runs", READING), ("GET", "/runs", READING)]
ALLOWED += [("POST", "/api/v1/runs", PUSHING), ("POST", "/api/v1/evaluations", RUNNING)]


@pytest.mark.parametrize(("method", "path", "allowed"), ALLOWED)
def test_a_token_opens_only_what_it_is_for(
    divided: Portal, method: str, path: str, allowed: str
) -> None:
    for token in (PUSHING, READING, RUNNING):
        headers = {"Authorization": f"Bearer {token}"}
        answer = divided.request(method, path, b"" if method == "POST" else None, headers)
        assert (answer.status != 403) == (token == allowed), token
        if token != allowed:
            assert "and nothing else" in answer.text


def test_any_token_can_be_tried(divided: Portal) -> None:
    for token in (PUSHING, READING, RUNNING):
        answer = divided.get("/api/v1/token", Authorization=f"Bearer {token}")
        assert answer.json == {"known": True}
    assert divided.get("/api/v1/token", Authorization="Bearer of-nobody-at-all").status == 401


def test_a_browser_logs_in_with_a_token_that_may_read(divided: Portal) -> None:
    for token, status in ((READING, 303), (PUSHING, 401), (RUNNING, 401)):
        body = urlencode({"token": token})
        answer = divided.post("/login", body, Content_Type=FORM, Origin=divided.origin, Cookie="")
        assert answer.status == status


def test_by_the_name_of_a_proxy_only_its_own_address_may_change_something(results: Path) -> None:
    host = "portal.example.org"
    with serving(results, f"--url=https://{host}:8443") as portal:
        for origin in (f"http://{host}", f"https://{host}", "https://evil.example"):
            answer = portal.post("/logout", b"", Host=host, Origin=origin, Cookie="mlms_portal=1.2")
            assert answer.status == 403
        answer = portal.post("/logout", b"", Host=host, Origin=f"https://{host}:8443")
        assert answer.status == 303
