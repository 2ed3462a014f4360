"""Do one request of ``child``, and print the reply: {"size": …}, {"error": …} or the reply of
``child_web``.

The system limits the files that it writes, whatever a server says of their sizes. This runs in a
process of its own, whose standard input has the request in a line, and ends it when it closes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import resource
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from pytest_mlms.core.extras import install
from pytest_mlms.core.text import close_words

_CHUNK = 1 << 20  # bytes
_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
_HUB = re.compile(r"hf:(?:(datasets|spaces)/)?([^/]+/[^/@]+)@([^/]+)/(.+)")
_SHOWN = 5  # names, of those that may have been meant
_LONGEST_ERROR = 4096  # characters; libraries quote what a server sent
_LEAST_LIMIT = 1 << 20  # bytes of a file, which those of libraries' own caches and logs keep below
_MOST_MEMORY = 1 << 30  # bytes; some libraries read an answer whole, however long it is
_TOO_LARGE = "the server sends more than the limit; --mlms-download-size allows more"
_REDIRECTS = (301, 302, 303, 307, 308)
_LEAST_LIKENESS = 0.4  # of a name to the one that is missing, from 0 to 1


class _Refused(Exception):
    """The file can't be fetched; the text says why, and what to do."""


def main() -> None:
    """Write what the request asks for to its file, and print the reply."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit(resource.RLIMIT_FSIZE, max(request["limit"], _LEAST_LIMIT))
    try:
        reply = _fetch_from_web(request) if "headers" in request else _fetch_by_library(request)
    except _Refused as refused:
        reply = {"error": str(refused)}
    if "error" in reply:
        reply["error"] = reply["error"][:_LONGEST_ERROR]
    print(json.dumps(reply))


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _limit(kind: int, size: int) -> None:
    """Have the system refuse larger files, or more memory."""
    _, most = resource.getrlimit(kind)
    limit = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(kind, (limit, most))


def _check_size(size: int | None, limit: int) -> None:
    if size is not None and size > limit:
        raise _Refused(f"it has {size:,} bytes; --mlms-download-size allows more")


def _fetch_from_web(request: Mapping[str, Any]) -> dict[str, Any]:
    _limit(resource.RLIMIT_DATA, _MOST_MEMORY)
    from pytest_mlms.provide.artifacts.child_web import reply_to

    return reply_to(request, lambda total: print(json.dumps({"total": total}), flush=True))


def _fetch_by_library(request: Mapping[str, Any]) -> dict[str, Any]:
    source, partial, limit = request["url"], Path(request["file"]), request["limit"]
    fetch = _fetch_from_hub if source.startswith("hf:") else _fetch_object
    fetch(source, partial, limit)
    size = partial.stat().st_size
    _check_size(size, limit)
    return {"size": size}


def _fetch_object(source: str, partial: Path, limit: int) -> None:
    """Append what is missing of an object to the partial file, by fsspec."""
    _limit(resource.RLIMIT_DATA, _MOST_MEMORY)
    scheme = source.partition(":")[0]
    library = _LIBRARIES[scheme]
    try:
        import fsspec

        _follow_no_redirect(are_told=library == "s3fs")
        system, path = fsspec.core.url_to_fs(source)
    except ImportError as error:
        needs = f"{scheme}:// needs fsspec and {library}"
        raise _Refused(f"{needs}; {install('fsspec', library)}") from error
    except Exception as error:
        raise _Refused(_failure(error, library)) from error
    try:
        size = system.size(path)
        _check_size(size, limit)
        _append(system, path, partial, size)
    except _Refused:
        raise
    except FileNotFoundError as error:
        raise _Refused("there is no such file; correct the address") from error
    except Exception as error:
        raise _Refused(_failure(error, library)) from error


def _follow_no_redirect(are_told: bool) -> None:
    """Have aiohttp follow no redirect: a store needs none, and one may lead into this machine.

    Its addresses can't be refused instead: credentials of clouds come from there. They are an
    error here, unless the library ``are_told``: to s3fs they tell the region of a bucket.
    """
    try:
        import aiohttp
    except ImportError:  # the library has another way to its store
        return
    session: Any = aiohttp.ClientSession
    request = session._request

    async def refusing(self: Any, *arguments: Any, **options: Any) -> Any:
        answer = await request(self, *arguments, **{**options, "allow_redirects": False})
        if answer.status in _REDIRECTS and not are_told:
            answer.close()
            raise _Refused(f"the store redirects ({answer.status}); check the address")
        return answer

    session._request = refusing


def _append(system: object, path: str, partial: Path, size: int | None) -> None:
    done = partial.stat().st_size if partial.exists() else 0
    if size is None or done > size:
        done = 0
    with system.open(path, "rb") as remote, partial.open("ab" if done else "wb") as file:  # type: ignore[attr-defined]
        remote.seek(done)
        while chunk := remote.read(_CHUNK):
            file.write(chunk)
            file.flush()


def _failure(error: Exception, library: str) -> str:
    if _is_of_limit(error):
        return _TOO_LARGE
    reason = str(error) or type(error).__name__
    is_refused = isinstance(error, PermissionError) or "redential" in f"{type(error)}{reason}"
    advice = "check the network and the address"
    if is_refused:
        advice = f"give {library} credentials, as its documentation says"
    return f"{type(error).__name__}: {reason}; {advice}"


class _HubFile(NamedTuple):
    """A file of a repository of models, or of another ``kind``: "dataset" or "space"."""

    kind: str | None
    repository: str
    revision: str
    name: str


def _fetch_from_hub(source: str, partial: Path, limit: int) -> None:
    """Fetch a file of a repository by huggingface_hub into its cache, and link it from there."""
    try:
        import huggingface_hub.errors
    except ImportError as error:
        raise _Refused(f"hf: needs huggingface_hub; {install('hf')}") from error
    found = _HUB.fullmatch(source)
    assert found, "the schema has checked it"
    kind = found[1].removesuffix("s") if found[1] else None
    wanted = _HubFile(kind, found[2], unquote(found[3]), found[4])
    try:
        with contextlib.suppress(huggingface_hub.errors.OfflineModeIsEnabled):
            address = huggingface_hub.hf_hub_url(
                wanted.repository, wanted.name, repo_type=kind, revision=wanted.revision
            )
            _check_size(huggingface_hub.get_hf_file_metadata(address).size, limit)
        path = huggingface_hub.hf_hub_download(
            wanted.repository, wanted.name, repo_type=kind, revision=wanted.revision
        )
    except _Refused:
        raise
    except Exception as error:
        raise _Refused(_hub_failure(error, wanted)) from error
    partial.unlink(missing_ok=True)
    try:
        os.link(Path(path).resolve(), partial)
    except OSError:  # another disk, or one without links
        shutil.copyfile(path, partial)


def _is_of_limit(error: Exception) -> bool:
    """Return whether the system has refused to write or to keep more than the limit."""
    is_of_file = isinstance(error, OSError) and error.errno == errno.EFBIG
    return is_of_file or isinstance(error, MemoryError)


def _hub_failure(error: Exception, wanted: _HubFile) -> str:
    if _is_of_limit(error):
        return _TOO_LARGE
    from huggingface_hub import errors

    repository = wanted.repository
    token = "set HF_TOKEN, or run 'hf auth login'"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return f"{repository} is gated: accept its terms on its page, and {token}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no {repository}, or it needs a token; correct the name, or {token}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {wanted.revision!r}; write a commit or a tag"
    if isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
        return "the hub can't be reached, and its cache has no such file; check the network"
    if isinstance(error, errors.EntryNotFoundError):
        return f"{repository} has no file {wanted.name!r}; {_near(wanted)}"
    if status in (401, 403):
        return f"the hub answered {status}; {token}"
    return f"{type(error).__name__}: {error}; check the network and the address"


def _near(wanted: _HubFile) -> str:
    """Return an advice with the files that may have been meant, if the hub tells them."""
    import huggingface_hub

    try:
        names = huggingface_hub.list_repo_files(
            wanted.repository, repo_type=wanted.kind, revision=wanted.revision
        )
    except Exception:  # the error is told without it
        return "correct the path"
    close = close_words(wanted.name, names, _SHOWN, _LEAST_LIKENESS)
    return f"did you mean {' or '.join(close or names[:_SHOWN])}?"


if __name__ == "__main__":
    main()
