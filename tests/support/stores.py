"""Stores of objects on a local server, as far as gcsfs, adlfs and s3fs ask them for a file."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from urllib.parse import unquote

_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
_ISO = "2026-01-01T00:00:00.000Z"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_LIST_OF_AZURE = """<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ServiceEndpoint="{url}/account" ContainerName="bucket"><Blobs>
<Blob><Name>{name}</Name><Properties><Content-Length>{size}</Content-Length><Etag>"1"</Etag>
<Last-Modified>{date}</Last-Modified><BlobType>BlockBlob</BlobType></Properties></Blob>
</Blobs><NextMarker/></EnumerationResults>"""
_LIST_OF_S3 = """<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name>
<KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents><Key>{name}</Key>
<LastModified>{iso}</LastModified><ETag>"1"</ETag><Size>{size}</Size></Contents></ListBucketResult>
"""

Body = Callable[["Handler", bytes], None]


class Store(http.server.ThreadingHTTPServer):
    """Serves ``data`` as the only object, of any name, in a bucket or container ``bucket``.

    ``said`` is the size that it tells before, ``body`` answers requests for the data, and
    ``fetched`` counts these.
    """

    daemon_threads = True

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = data
        self.said = len(data)
        self.body: Body = send
        self.fetched = 0

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the libraries find it."""
        account = f"AccountName=account;AccountKey={_AZURE_KEY}"
        azure = f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={self.url}/account;"
        return {
            "FSSPEC_GS": json.dumps({"endpoint_url": self.url, "token": "anon"}),
            "FSSPEC_AZ": json.dumps({"connection_string": azure}),
            "FSSPEC_S3": json.dumps({"endpoint_url": self.url, "key": "key", "secret": "secret"}),
            "AWS_DEFAULT_REGION": "us-east-1",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # it would ask Google, by gRPC
        }


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers what the libraries ask of each service."""

    server: Store
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Tell the size."""
        self.send(200, b"", self._facts(), str(self.server.said))

    def do_GET(self) -> None:
        """Tell what there is, or send the data."""
        place, _, query = self.path.partition("?")
        name = unquote(place.rpartition("/")[2])
        if place.startswith("/storage/v1/"):
            about = self._about(name)
            listed = {"items": [about], "kind": "storage#objects"}
            is_list = place.rstrip("/").endswith("/o")
            self.send(200, json.dumps(listed if is_list else about).encode())
        elif "comp=list" in query or "list-type=2" in query:
            form = _LIST_OF_AZURE if "comp=list" in query else _LIST_OF_S3
            found = re.search("prefix=([^&]*)", query)
            name = unquote(found[1]) if found else "data.bin"
            facts = {"name": name, "size": self.server.said, "date": _DATE, "iso": _ISO}
            self.send(200, form.format(url=self.server.url, **facts).encode())
        else:
            self.server.fetched += 1
            with contextlib.suppress(OSError):
                self.server.body(self, self.server.data)

    def send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, length: str = ""
    ) -> None:
        """Send an answer, whose length may be told falsely; an empty body has none."""
        self.send_response(status)
        self.send_header("Content-Length", length or str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _about(self, name: str) -> dict[str, str]:
        facts = {"name": name, "bucket": "bucket", "size": str(self.server.said)}
        return {**facts, "generation": "1", "updated": _ISO, "timeCreated": _ISO, "etag": "1"}

    def _facts(self) -> dict[str, str]:
        azure = {"x-ms-blob-type": "BlockBlob", "x-ms-creation-time": _DATE}
        return {"ETag": '"1"', "Last-Modified": _DATE, "Accept-Ranges": "bytes", **azure}

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def send(handler: Handler, data: bytes) -> None:
    """Send the data, or the part that is asked for."""
    asked = handler.headers.get("x-ms-range") or handler.headers.get("Range") or ""
    found = _RANGE.fullmatch(asked)
    if not found:
        handler.send(200, data, handler._facts())
        return
    first, last = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
    place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
    handler.send(206, data[first : last + 1], {**handler._facts(), **place})


@contextlib.contextmanager
def serving_store(data: bytes) -> Iterator[Store]:
    """Run a store in a thread."""
    with Store(data) as store:
        thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()
