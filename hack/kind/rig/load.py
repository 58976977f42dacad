"""Images into the nodes: of each image only the layers that a node has not got.

`docker save | ctr import` moves every layer each time, half a minute for four nodes where only our
own thin layer is new. containerd takes an OCI archive whose layers it partly has: one is made here.
"""

import hashlib
import io
import json
import posixpath
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import config
from .docker import Docker
from .run import Fail, must, say

OCI = "application/vnd.oci.image"
# Digests of what the node's containerd holds, then the images whose names mean what they should.
ASK = """
ctr --namespace k8s.io content ls --quiet
while [ $# -gt 0 ]; do
    crictl inspecti "$1" 2>/dev/null | tr -d ' \\n' | grep -q "\\"id\\":\\"$2\\"" && echo "image $1"
    shift 2
done
true
"""
IMPORT = ("ctr", "--namespace", "k8s.io", "images", "import", "--snapshotter", "overlayfs", "-")


@dataclass(frozen=True)
class Layer:
    digest: str
    media_type: str
    offset: int
    size: int


@dataclass(frozen=True)
class Image:
    name: str
    config: bytes
    layers: list[Layer]


def load(found: Docker, nodes: Sequence[str], names: Sequence[str]) -> None:
    began = time.monotonic()
    wanted = {name: _identity(found, name) for name in names}
    with ThreadPoolExecutor(config.NODES) as pool:
        responses = pool.map(partial(_has, found, wanted), nodes)
        has = dict(zip(nodes, responses, strict=True))
        lacking = [node for node in nodes if not has[node].issuperset(f"image {n}" for n in names)]
        moved = 0
        if lacking:
            with tempfile.TemporaryDirectory(dir=config.cache()) as scratch:
                saved = Path(scratch) / "saved.tar"
                must(["docker", "save", "--output", str(saved), *names], config.LOAD, found.env)
                archive, images = Path(scratch) / "archive.tar", _read(saved, names)
                _write(archive, saved, images, set.intersection(*(has[n] for n in lacking)))
                moved = archive.stat().st_size
                failed = [n for n in pool.map(partial(_import, found, archive), lacking) if n]
                if failed:
                    # A layer that was there a moment ago may have been of a deleted image.
                    _write(archive, saved, images, set())
                    failed = [n for n in pool.map(partial(_import, found, archive), lacking) if n]
                if failed:
                    raise Fail(f"load: expected the nodes to take the images, found: {failed[0]}")
    say(
        f"load: {' '.join(names)} into {len(lacking)} of {len(nodes)} nodes,"
        f" {moved / 1e6:.1f} MB to each, {time.monotonic() - began:.1f} s"
    )


def _identity(found: Docker, name: str) -> str:
    ok, text = found.answer("image", "inspect", "--format", "{{.Id}}", name)
    if not ok:
        raise Fail(f"load: expected {name} in Docker, found: {text}; hack/images/build makes ours")
    return text.strip()


def _has(found: Docker, wanted: Mapping[str, str], node: str) -> set[str]:
    pairs = [word for pair in wanted.items() for word in pair]
    return set(found.must("exec", node, "sh", "-c", ASK, "sh", *pairs, limit=60).splitlines())


def _read(saved: Path, names: Sequence[str]) -> list[Image]:
    """The images of a `docker save`, of Docker 25 and newer (by digest) or of older ones."""
    with tarfile.open(saved) as tar, saved.open("rb") as raw:
        entries = json.loads(_bytes(tar, "manifest.json"))
        images = []
        for entry in entries:
            document = _bytes(tar, entry["Config"])
            # Older ones write layers as they are, uncompressed: these are then their digests.
            plain = json.loads(document)["rootfs"]["diff_ids"]
            layers = []
            for path, digest in zip(entry["Layers"], plain, strict=True):
                member = tar.getmember(path)
                if member.issym():
                    path = posixpath.normpath(f"{posixpath.dirname(path)}/{member.linkname}")
                    member = tar.getmember(path)
                if path.startswith("blobs/sha256/"):
                    digest = f"sha256:{posixpath.basename(path)}"
                raw.seek(member.offset_data)
                kind = _media_type(raw.read(4))
                layers.append(Layer(digest, kind, member.offset_data, member.size))
            images += [Image(n, document, layers) for n in entry["RepoTags"] or [] if n in names]
    return images


def _bytes(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise Fail(f"load: `docker save` wrote {name} as no plain file; is this Docker's own CLI?")
    return file.read()


def _media_type(start: bytes) -> str:
    if start.startswith(b"\x1f\x8b"):
        return f"{OCI}.layer.v1.tar+gzip"
    if start == b"\x28\xb5\x2f\xfd":
        return f"{OCI}.layer.v1.tar+zstd"
    return f"{OCI}.layer.v1.tar"


def _write(archive: Path, saved: Path, images: Sequence[Image], there: set[str]) -> None:
    """An OCI archive of the images, without the layers that are there."""
    with tarfile.open(archive, "w") as tar, saved.open("rb") as raw:
        written = set(there)

        def add(name: str, content: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))

        def add_blob(content: bytes) -> dict[str, Any]:
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            if digest not in written:
                written.add(digest)
                add(f"blobs/sha256/{digest[7:]}", content)
            return {"digest": digest, "size": len(content)}

        index = []
        for image in images:
            for layer in image.layers:
                if layer.digest not in written:
                    written.add(layer.digest)
                    info = tarfile.TarInfo(f"blobs/sha256/{layer.digest[7:]}")
                    info.size = layer.size
                    raw.seek(layer.offset)
                    tar.addfile(info, raw)
            manifest = {
                "schemaVersion": 2,
                "mediaType": f"{OCI}.manifest.v1+json",
                "config": {"mediaType": f"{OCI}.config.v1+json", **add_blob(image.config)},
                "layers": [
                    {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}
                    for layer in image.layers
                ],
            }
            index.append(
                {
                    "mediaType": f"{OCI}.manifest.v1+json",
                    **add_blob(json.dumps(manifest).encode()),
                    "annotations": {"io.containerd.image.name": _full(image.name)},
                }
            )
        add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add("index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())


def _full(name: str) -> str:
    """As Kubernetes spells it: with the registry and, for one word, the library's folder."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    named = "." in first or ":" in first or first == "localhost"
    return name if named else f"docker.io/{name}"


def _import(found: Docker, archive: Path, node: str) -> str | None:
    """What went wrong, if anything did."""
    command = ["docker", "exec", "--interactive", node, *IMPORT]
    with archive.open("rb") as file:
        try:
            done = subprocess.run(
                command, stdin=file, capture_output=True, timeout=config.LOAD, env=found.env
            )
        except subprocess.TimeoutExpired:
            return f"{node} was not done within {config.LOAD} s"
    return f"{node}: {done.stderr.decode().strip()[-400:]}" if done.returncode else None
