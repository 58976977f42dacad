"""The image that a cluster's nodes run: found, pulled, or built from Go modules and Debian."""

import os
import shutil
from pathlib import Path

from . import apt, config, tools
from .docker import Docker
from .run import Fail, Steps, must, only_one, say

SOURCES = config.HERE / "node"
KUBE_NAMES = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
    "kubectl", "kubeadm", "etcd", "crictl", "podroutes",
)  # fmt: skip
GO_PROGRAMS = {
    "kube": ("kube", "."),
    "pause": ("pause", "."),
    "coredns": ("coredns", "."),
    "local-path-provisioner": ("local-path", "github.com/rancher/local-path-provisioner"),
}
UPSTREAM_BASE = "debian:bookworm-slim"
# Copies of the image in the cache: this one, and that of another branch.
KEPT = 2
MINOR = config.KUBERNETES.split(".")[1]
VERSION_FLAGS = " ".join(
    f"-X {package}.{name}={value}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for name, value in (
        ("gitVersion", config.KUBERNETES),
        ("gitMajor", "1"),
        ("gitMinor", MINOR),
        ("gitTreeState", "clean"),
        ("buildDate", "2026-01-01T00:00:00Z"),
    )
)
LDFLAGS = f"-s -w {VERSION_FLAGS}"
# usr-is-merged: its alternative, usrmerge, brings all of Perl, 55 MB.
BASE_OPTIONS = (
    "--variant=apt",
    "--include=usr-is-merged",
    *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")),
)
BASE = f"tidemark/debian:bookworm-{config.content_hash([], *BASE_OPTIONS)}"


def tag() -> str:
    # This file is part of the recipe as much as what it works on.
    parts = [SOURCES, Path(__file__)]
    return f"tidemark/kind-node:{config.content_hash(parts, config.KUBERNETES, config.machine())}"


def archive() -> Path:
    """A copy beside Docker's own: it survives a prune, and moves to another machine."""
    return config.cache() / "node" / f"{tag().split(':')[1]}.tar.zst"


def go_programs() -> Path:
    """Where the Go programs are kept; they change less often than the image does."""
    digest = config.content_hash([SOURCES / "go"], LDFLAGS, config.machine())
    return config.cache() / "go" / digest


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
            _plan(steps, docker)
            steps.run()
        if docker.ours:
            _marker().parent.mkdir(parents=True, exist_ok=True)
            _marker().touch()
    return tag()


def _plan(steps: Steps, docker: Docker) -> None:
    out = go_programs()
    out.mkdir(parents=True, exist_ok=True)
    work = config.cache() / "work"
    recipe = _Recipe(steps, docker, out, work)
    for name in GO_PROGRAMS:
        if not (out / name).exists():
            steps.add(f"{name} (Go)", lambda name=name: recipe.go_build(name))  # type: ignore[misc]
    tools.plan(steps)
    if not docker.has(BASE):
        steps.add("Debian base", lambda: base(steps, docker))
    steps.add("pause image", recipe.pause)
    steps.add("system image (Debian packages)", recipe.system)
    steps.add("bare node (Debian packages)", recipe.bare_node)
    steps.add("unpacking the images into the node", recipe.bake)
    steps.add("node image", recipe.node)
    steps.add(f"a copy to {archive()}", lambda: _save(steps, docker))


def base(steps: Steps, docker: Docker) -> None:
    """Debian under a name of ours: as published where a registry answers, else made here."""
    ok = docker.has(UPSTREAM_BASE)
    if not ok:
        ask = ("manifest", "inspect", UPSTREAM_BASE)
        ok = docker.answer(*ask, limit=config.REGISTRY_ANSWERS)[0]
        if ok:
            steps.command(["docker", "pull", UPSTREAM_BASE], config.PULL, docker.env)
    if ok:
        docker.must("tag", UPSTREAM_BASE, BASE)
        return
    if not shutil.which("mmdebstrap"):
        apt.install("mmdebstrap")
    # Of Debian's suites, as apt here may point elsewhere or at another release.
    make = ["mmdebstrap", "--quiet", *BASE_OPTIONS, "bookworm", "-"]
    steps.pipe(make, ["docker", "import", "-", BASE], config.DOCKER_STEP, docker.env)


class _Recipe:
    def __init__(self, steps: Steps, docker: Docker, out: Path, work: Path) -> None:
        self.steps, self.docker, self.out, self.work = steps, docker, out, work

    def go_build(self, name: str) -> None:
        directory, package = GO_PROGRAMS[name]
        scratch = self.out / f".{name}"
        # -v names each package as it is compiled: the log's length is the progress.
        flags = ["-v", "-buildvcs=false", "-trimpath", "-ldflags", LDFLAGS, "-o", str(scratch)]
        self.steps.command(
            [tools.go(), "build", *flags, package],
            config.GO_BUILD, tools.go_env(), SOURCES / "go" / directory,
        )  # fmt: skip
        scratch.rename(self.out / name)

    def _context(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "bin").mkdir(parents=True)
        shutil.copy(SOURCES / "Dockerfile", self.work)
        shutil.copytree(SOURCES / "rootfs", self.work / "rootfs")
        for name in GO_PROGRAMS:
            os.link(self.out / name, self.work / ("pause" if name == "pause" else f"bin/{name}"))
        for name in KUBE_NAMES:
            (self.work / "bin" / name).symlink_to("kube")

    def _target(self, target: str, *tags: str) -> None:
        # Our own Docker gives containers no network of their own: apt needs the host's.
        command = ["docker", "build", "--network", "host", "--target", target]
        command += ["--build-arg", f"BASE={BASE}", "--build-arg", f"VERSION={config.KUBERNETES}"]
        for name in tags:
            command += ["--tag", name]
        self.steps.command([*command, str(self.work)], config.DOCKER_STEP, self.docker.env)

    def _names(self) -> tuple[str, list[str]]:
        """kubeadm's own names for the pause image and for all the others."""
        kubeadm = [str(self.work / "bin" / "kubeadm"), "config", "images", "list"]
        images = must([*kubeadm, "--kubernetes-version", config.KUBERNETES], 60).split()
        (pause,) = [image for image in images if "/pause:" in image]
        return pause, [f"tidemark/kind-system:{config.KUBERNETES}", *set(images) - {pause}]

    def pause(self) -> None:
        self._context()
        self._target("pause", self._names()[0])

    def system(self) -> None:
        self._target("system", *self._names()[1])

    def bare_node(self) -> None:
        self._target("bare-node", "tidemark/kind-node:bare")

    def bake(self) -> None:
        pause, system = self._names()
        script = (SOURCES / "bake-images").read_text()
        # Docker would also log the tar, which takes longer than all the rest.
        run = ["docker", "run", "--rm", "--interactive", "--privileged", "--network", "none"]
        run += ["--log-driver", "none", "--volume", "/var/lib/containerd", "--entrypoint", "sh"]
        run += ["tidemark/kind-node:bare", "-c", script]
        save = ["docker", "save", pause, *system]
        with (self.work / "store.tar").open("wb") as store:
            self.steps.pipe(save, run, config.DOCKER_STEP, self.docker.env, store)

    def node(self) -> None:
        self._target("node", tag())
        shutil.rmtree(self.work)
        self.docker.answer("rmi", "tidemark/kind-node:bare")


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
