"""The image that a cluster's nodes run: found, pulled, or built from Go modules and Debian."""

import os
import shutil
import tomllib
from pathlib import Path

from . import apt, config, tools
from .docker import Docker
from .node_recipe import SOURCES, Recipe, tag
from .run import Fail, Steps, only_one, say

# Copies of the image in the cache: this one, and that of another branch.
KEPT = 2


def archive() -> Path:
    """A copy beside Docker's own: it survives a prune, and moves to another machine."""
    return config.cache() / "node" / f"{tag().split(':')[1]}.tar.zst"


def registry_answers(docker: Docker) -> tuple[bool, str]:
    return docker.answer(
        "manifest", "inspect", config.PUBLISHED_NODE, limit=config.REGISTRY_ANSWERS
    )


def at_hand(docker: Docker | None) -> tuple[str | None, str]:
    """An image that needs neither a registry nor a build, and where it is."""
    if docker:
        for image in (tag(), config.PUBLISHED_NODE):
            if docker.has(image):
                return image, "in Docker"
    elif _marker().exists():
        return tag(), "in our own Docker's data"
    if archive().exists():
        return tag(), f"as {archive()}"
    return None, f"no node image in Docker or in {config.cache()}"


def _marker() -> Path:
    return config.cache() / "docker" / "has" / tag().replace("/", "_")


def find(docker: Docker) -> str:
    """The image to make nodes from; says in one line where it is from."""
    image, where = at_hand(docker)
    if image and where == "in Docker":
        say(f"node image: {image} is in Docker")
        return image
    return (None if image else _pull(docker)) or build(docker)


def _pull(docker: Docker) -> str | None:
    ok, text = registry_answers(docker)
    if not ok:
        limit = config.REGISTRY_ANSWERS
        say(f"node image: no registry gave kind's published one within {limit} s ({text[:120]})")
        return None
    say(f"node image: pulling kind's published {config.PUBLISHED_NODE.split('@')[0]}")
    steps = Steps(config.cache() / "log" / "node-pull.log", "  docker pull")
    steps.command(["docker", "pull", config.PUBLISHED_NODE], config.PULL, docker.env)
    return config.PUBLISHED_NODE


def build(docker: Docker) -> str:
    """Our own image, from the cache or built: a minute or two where Go's caches are warm."""
    with only_one(config.cache() / "node" / "lock", config.OTHER_BUILDER):
        if not docker.has(tag()) and archive().exists():
            say(f"node image: loading {tag()} into Docker from the cache")
            _load(Steps(config.cache() / "log" / "node-load.log", "  docker load"), docker)
        if not docker.has(tag()):
            say(f"node image: building {tag()} from Go modules and Debian packages")
            steps = Steps(config.cache() / "log" / "node-build.log")
            recipe = Recipe(steps, docker)
            recipe.plan_programs()
            tools.plan(steps)
            recipe.plan_images()
            steps.add(f"a copy to {archive()}", lambda: _save(steps, docker))
            steps.run()
            _forget_parts(docker)
        if docker.ours:
            _marker().parent.mkdir(parents=True, exist_ok=True)
            _marker().touch()
    return tag()


def _forget_parts(docker: Docker) -> None:
    """The parts bear names of Kubernetes' own images, and must not pass for these in a Docker."""
    settings = tomllib.loads((SOURCES / "rootfs/etc/containerd/config.toml").read_text())
    pause = settings["plugins"]["io.containerd.grpc.v1.cri"]["sandbox_image"]
    for image in (f"tidemark/kind-system:{config.KUBERNETES}", pause):
        ok, names = docker.answer("image", "inspect", "--format", '{{join .RepoTags " "}}', image)
        if ok:
            docker.answer("rmi", *names.split())


def _compressor() -> list[str]:
    if not shutil.which("zstd"):
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            return []
        apt.install("zstd")
    return ["zstd", "--quiet", "-T0", "-1"]


def _save(steps: Steps, docker: Docker) -> None:
    compressor = _compressor()
    if not compressor:
        say("  no zstd here: no copy kept beside Docker's own")
        return
    scratch = archive().with_suffix(".new")
    with scratch.open("wb") as file:
        steps.pipe(["docker", "save", tag()], compressor, config.DOCKER_STEP, docker.env, file)
    scratch.rename(archive())
    kept = sorted(archive().parent.glob("*.tar.zst"), key=lambda path: path.stat().st_mtime)
    for old in kept[:-KEPT]:
        old.unlink()
    if docker.ours:
        ours = docker.must("images", "--format", "{{.Tag}}", "tidemark/kind-node").split()
        for name in ours[KEPT:]:
            docker.answer("rmi", f"tidemark/kind-node:{name}")


def _load(steps: Steps, docker: Docker) -> None:
    if not _compressor():
        raise Fail(f"expected zstd to read {archive()}, found none; install zstd")
    unpack = ["zstd", "--quiet", "-dc", str(archive())]
    steps.pipe(unpack, ["docker", "load"], config.DOCKER_STEP, docker.env)
