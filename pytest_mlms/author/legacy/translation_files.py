"""Files and framework of a native manifest from those of a legacy one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from pytest_mlms.author.legacy.digests import DigestOfFile
from pytest_mlms.author.legacy.records import (
    FRAMEWORKS,
    LegacyFiles,
    LegacyFramework,
    LegacyManifest,
    Note,
    UnclearManifest,
)
from pytest_mlms.author.legacy.translated import Key, TranslatedFiles

_MD5 = re.compile(r"[0-9a-f]{32}")
_RELEASE = re.compile(r"\d+(\.\d+)*")
_SECURE_HOSTS = ("s3.amazonaws.com",)
_NO_FILE = "no model file"

UNPINNED = "unpinned"
"""The digest of a file that has none: see docs/sources.md."""


def translate_files(manifest: LegacyManifest) -> TranslatedFiles:
    """Return the framework and the files. Raises UnclearManifest where there are none."""
    if manifest.dialect == "A0":
        text = "has no model file, only the page in 'trained_url'; name its files under 'model'"
        raise UnclearManifest(manifest.files.line[""], text, _NO_FILE)
    files = _with_graph(manifest.files, manifest.framework)
    framework = manifest.framework
    predictor, why = _predictor_of(framework, files)
    versions = _versions(framework) if predictor == framework.name.lower() else ""
    written = framework.version or "nothing"
    if not why and versions:
        why = f"the original has the version {written}; the nearest one runs it if no stack has it"
    addresses = _addresses(files)
    line = framework.line["version"]
    part = [
        Key("framework", f"{predictor} {versions}".strip(), why, line),
        Key("or_nearest", True, line=line),
        *addresses.values(),
    ]
    digests = {"graph": _digest(files, "graph", files.graph_md5)}
    if files.weights:
        digests["weights"] = _digest(files, "weights", files.weights_md5)
    part.append(_digest_key(manifest, digests))
    known = []
    for role, digest in digests.items():
        if digest != UNPINNED and not files.is_archive:
            line = files.line[f"{role}_checksum"]
            known.append(DigestOfFile(addresses[role].value, digest, line))
    notes = list(_unpinned_notes(files, digests))
    return TranslatedFiles(predictor, tuple(part), known, notes)


def _with_graph(files: LegacyFiles, framework: LegacyFramework) -> LegacyFiles:
    """Return the files; an ONNX file of Caffe2 is the graph, although it is under weights_path.

    Raises UnclearManifest where there is no graph.
    """
    if files.graph:
        return files
    if framework.name.lower() == "caffe2" and files.weights.endswith(".onnx"):
        graph = replace(files, graph=files.weights, graph_md5=files.weights_md5)
        return replace(graph, weights="", weights_md5="")
    if files.onnx_url:
        text = "has no graph_path, only onnx_url, which no agent read"
        advice = "write graph_path and its graph_checksum, and the framework Onnxruntime, to run it"
        raise UnclearManifest(files.line["onnx_url"], f"{text}; {advice}", _NO_FILE)
    raise UnclearManifest(
        files.line["graph_path"], "has no graph_path; write the address of the model", _NO_FILE
    )


def _predictor_of(framework: LegacyFramework, files: LegacyFiles) -> tuple[str, str]:
    """Return the predictor for a model's files, and why if it isn't that of its framework."""
    name = framework.name.lower()
    if name not in FRAMEWORKS:
        known = ", ".join(FRAMEWORKS.values())
        text = f"the framework {framework.name!r} is unknown; write one of {known}"
        raise UnclearManifest(framework.line["name"], text, "unknown framework")
    if name == "tensorrt" and files.graph.endswith(".prototxt"):
        return (
            "caffe",
            "TensorRT's parser of Caffe's files is gone since version 10; Caffe runs them",
        )
    if name == "caffe2" and files.graph.endswith(".onnx"):
        return "onnxruntime", "Caffe2 read this ONNX file by its own importer; ONNX Runtime runs it"
    return name, ""


def _versions(framework: LegacyFramework) -> str:
    """Return the versions as Python has them: all patches of 1.12, and 1.12.0 alone."""
    written = framework.version.replace(" ", "")
    if not written:
        return ""
    if _RELEASE.fullmatch(written):
        is_exact = written.count(".") > 1
        return f"=={written}" if is_exact else f"=={written}.*"
    try:
        SpecifierSet(written)
    except InvalidSpecifier:
        text = f"framework version {written!r} is unknown; write it as in 1.12 or '>=1.1.0'"
        raise UnclearManifest(framework.line["version"], text, "unknown framework") from None
    return written


def _addresses(files: LegacyFiles) -> Mapping[str, Key]:
    """Return the keys of addresses by their names."""
    keys = {"graph": _address_key(files, "graph", files.graph)}
    if files.weights:
        keys["weights"] = _address_key(files, "weights", files.weights)
    return keys


def _digest(files: LegacyFiles, role: str, md5: str) -> str:
    if not md5:
        return UNPINNED
    return digest_of(md5, files.line[f"{role}_checksum"], f"{role}_checksum")


def _unpinned_notes(files: LegacyFiles, digests: Mapping[str, str]) -> Iterator[Note]:
    """Yield a warning for each file without a digest."""
    for role, digest in digests.items():
        if digest == UNPINNED:
            text = f"there is no {role}_checksum; its sha256 is recorded when it is first fetched"
            yield Note(files.line[f"{role}_path"], text)


def _digest_key(manifest: LegacyManifest, digests: Mapping[str, str]) -> Key:
    values = list(digests.values())
    why = "an md5, the only digest that the original has"
    if manifest.files.is_archive:
        owner = "the archive" if manifest.dialect == "B" else "the file in the archive"
        why = f"{why}; it is that of {owner}"
    if UNPINNED in values:
        why = "the original has no digest; it is recorded when the file is first fetched"
    line = manifest.files.line["graph_checksum"]
    return Key("sha256", values[0] if len(values) == 1 else dict(digests), why, line)


def digest_of(md5: str, line: int, key: str) -> str:
    """Return a native digest of an md5. Raises UnclearManifest for another text."""
    lower = md5.strip().lower()
    if not _MD5.fullmatch(lower):
        text = f"{key} is no md5; write its 32 hexadecimal digits"
        raise UnclearManifest(line, text, "no digest")
    return f"md5:{lower}"


def _address_key(files: LegacyFiles, name: str, path: str) -> Key:
    line = files.line[f"{name}_path"]
    if files.is_archive and files.base_url:
        archive, why = address_of(files.base_url, files.line["base_url"])
        return Key(name, f"{archive}#{path}", why, line)
    written = path
    if files.base_url and "://" not in path:
        written = f"{files.base_url.rstrip('/')}/{path.lstrip('/')}"
    address, why = address_of(written, line)
    return Key(name, address, why, line)


def address_of(url: str, line: int) -> tuple[str, str]:
    """Return an address over TLS where its host has it, and why it isn't the original's.

    Raises UnclearManifest for what is no address.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        text = f"{url!r} is no address ({error}); correct it"
        raise UnclearManifest(line, text, "no address") from None
    if parts.scheme not in ("http", "https") or not host:
        text = f"{url!r} is no address of the web; write https://HOST/FILE"
        raise UnclearManifest(line, text, "no address")
    if parts.scheme == "http" and host in _SECURE_HOSTS:
        return f"https{url.removeprefix('http')}", "by https, where the original has http"
    return url, ""
