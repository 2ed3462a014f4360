"""The files that are sent to remote workspaces, and their places there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.distribute.remote.workspace_sync import WorkspaceSync, small_files
from pytest_mlms.options import OPTIONS


@dataclass(frozen=True)
class FakeOptions:
    """Some of the plugin's options."""

    manifests: tuple[Path, ...] = ()
    predictors: tuple[Path, ...] = ()
    results: Path = Path("mlms-results")
    cache: Path | None = None
    lock: Path | None = None
    history: str | None = None
    push_token_file: Path | None = None

    def pack(self, place: Any) -> dict[str, Any]:
        places = [place(path) for path in self.manifests]
        return {"manifests": places, "cache": self.cache}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the rootdir of a project with a manifest and a conftest."""
    root = tmp_path / "root"
    (root / "manifests").mkdir(parents=True)
    (root / "manifests" / "a.yaml").write_text("a")
    (root / "conftest.py").write_text("")
    return root


def sync_of(root: Path, arguments: list[str] | None = None, **options: Any) -> WorkspaceSync:
    config: Any = SimpleNamespace(
        rootpath=root,
        inipath=None,
        args=arguments or [],
        invocation_params=SimpleNamespace(dir=root),
    )
    settings: Any = FakeOptions(**options)
    return WorkspaceSync(config, settings)


def test_manifests_and_conftests_keep_their_places(root: Path) -> None:
    sync = sync_of(root, manifests=(root / "manifests",))
    assert sync.files == {
        "manifests/a.yaml": b"a",
        "conftest.py": b"",
        "pytest.ini": b"[pytest]\n",
    }


def test_the_lock_file_that_upgrades_are_judged_against_is_sent(root: Path) -> None:
    lock = root / "mlms.lock"
    lock.write_text("format = 1")
    assert sync_of(root, lock=lock).files["mlms.lock"] == b"format = 1"
    assert "mlms.lock" not in sync_of(root).files


def test_of_all_paths_that_options_name_only_what_workers_need_is_sent(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = []
    for option in OPTIONS:
        if option.read is Path:
            file = pytester.path / option.name
            if option.metavar == "DIR":
                file.mkdir()
                file /= "file.yaml"
            file.write_text(f"models: {option.name}")
            arguments.append(f"{option.flag}={option.name}")
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(arguments))  # none is refused as of no use
    config = pytester.parseconfig("--rootdir=.")
    options = Config.from_pytest(config)
    sent = WorkspaceSync(config, options)
    assert sorted(sent.files) == ["manifests/file.yaml", "predictors/file.yaml", "pytest.ini"]
    packed = {name: value for name, value in sent.options().items() if isinstance(value, dict)}
    told = {name for name, value in packed.items() if any(value.values())}
    assert told == {"manifests", "predictors", "results", "root"}


def test_a_token_below_a_folder_that_is_sent_stays_here(root: Path) -> None:
    token = root / "manifests" / "token.txt"
    token.write_text("a-secret")
    (root / "manifests" / "labels.txt").write_text("cat")
    (root / "manifests" / "link.txt").symlink_to(token)
    for named in (token, root / "manifests" / "link.txt"):
        sync = sync_of(root, manifests=(root / "manifests",), push_token_file=named)
        assert "manifests/labels.txt" in sync.files
        assert b"a-secret" not in sync.files.values()


@pytest.mark.parametrize("form", ["--mlms-history={}", "{}"])
def test_the_address_of_a_history_is_told_to_no_host(root: Path, form: str) -> None:
    address = "postgresql://user:password@host/history"
    sync = sync_of(root, history=address)
    assert sync.map_arguments([form.format(address)]) == [form.format("")]
    (root / "pyproject.toml").write_text(f'mlms_history = "{address}"')
    assert sync.files["pyproject.toml"] == b'mlms_history = ""'


def test_the_whole_rootdir_is_not_sent(root: Path) -> None:
    (root / "notes.txt").write_text("private")
    sync = sync_of(root, arguments=[str(root)])
    assert "notes.txt" not in sync.files


def test_files_outside_of_the_rootdir_stay_together(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    nested = outside / "more" / "c.yaml"
    nested.parent.mkdir(parents=True)
    nested.write_text("c")
    (outside / "b.yaml").write_text("b")
    sync = sync_of(root, manifests=(outside,))
    places = sorted(place for place in sync.files if place.startswith("outside/"))
    folder = places[0].removesuffix("/b.yaml")
    assert places == [f"{folder}/b.yaml", f"{folder}/more/c.yaml"]
    assert sync.original(places[1]) == nested


def test_a_place_stands_for_the_file_of_the_controller(root: Path) -> None:
    manifest = root / "manifests" / "a.yaml"
    sync = sync_of(root)
    assert sync.place(manifest) == "manifests/a.yaml"
    assert sync.original("manifests/a.yaml") == manifest


def test_arguments_that_are_paths_are_mapped_and_others_are_not(root: Path) -> None:
    path = root / "manifests" / "a.yaml"
    others = ["-k", "accuracy", "--tx=ssh=gpu1", "manifests"]
    arguments = [f"{path}::test_accuracy", *others]
    mapped = sync_of(root).map_arguments(arguments)
    assert mapped == ["manifests/a.yaml::test_accuracy", *others]


def test_a_host_uses_its_own_cache(root: Path) -> None:
    folders = (root / "manifests",)
    sync = sync_of(root, manifests=folders, cache=Path("/cache"))
    options = sync.options()
    assert options["manifests"] == ["manifests"]
    assert options["cache"] is None


def test_each_project_of_each_controller_has_a_folder(root: Path, tmp_path: Path) -> None:
    folder = sync_of(root).folder
    assert folder.startswith("pytest-mlms-")
    assert sync_of(root).folder == folder
    assert sync_of(tmp_path).folder != folder


def test_only_the_files_that_the_host_lacks_are_sent(root: Path) -> None:
    sent: list[Any] = []

    def receive(timeout: float) -> list[str]:
        (run, digests) = sent[0]
        assert run == "run1"
        return [digests["manifests/a.yaml"]]

    channel = SimpleNamespace(
        send=sent.append,
        receive=receive,
        waitclose=lambda timeout: None,
    )
    gateway = SimpleNamespace(remote_exec=lambda code: channel)
    sync = sync_of(root, manifests=(root / "manifests",))
    sync.send(gateway, "run1")
    assert sent[1:] == [b"a"]


def test_unreadable_files_environments_and_large_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / ".#b.yaml").symlink_to(tmp_path / "somebody@edits")
    (tmp_path / "large.txt").write_bytes(bytes(2 << 20))
    (tmp_path / "model.onnx").write_bytes(b"")
    for name in ("env/lib", ".git", "mlms-results"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "c.py").write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert list(small_files(tmp_path)) == [tmp_path / "a.yaml"]
