"""Containers, in the engine's words; no engine is needed to say them."""

import os
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Confinement, Launch, Quota
from holdfast.sandbox.container import Container, arguments, host_lives, host_mark
from tests.sandbox.support import PATH, confined

QUOTA = Quota(memory_bytes=400, processes=3, file_bytes=5, descriptors=6)


def said(launch: Launch) -> str:
    assert launch.confinement is not None
    return " ".join(arguments(launch, launch.confinement, name="holdfast-1", image="tools:1"))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine that says what it was asked, and knows one image and two containers."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        'case "$1" in image) [ "$5" = tools:1 ] || { echo no such image; exit 1; };;\n'
        f"ps) echo aaa map[dev.holdfast.host:1.999 x:y]; echo bbb dev.holdfast.host={host_mark()},x=y;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return calls


@pytest.mark.promise("BOX-05")
def test_every_wall_is_put_into_the_engines_words(root: Path) -> None:
    launch = confined(Launch(argv=("server", "--x"), env={"A": "1"}, cwd=str(root)), root, quota=QUOTA)

    words = said(launch)

    for wall in (
        *(
            "--network none",
            "--read-only",
            "--cap-drop ALL",
            "--security-opt no-new-privileges",
            "--pids-limit 3",
        ),
        *("--memory 400 --memory-swap 400", "--ulimit nofile=6:6", "--ulimit fsize=5:5", f"--workdir {root}"),
        *(f"--mount type=bind,source={root},target={root} ", f"--label dev.holdfast.host={host_mark()}"),
        *(f"--user {os.geteuid()}:{os.getegid()}", "--pull never", "seccomp=/proc/self/fd/4"),
    ):
        assert wall in words
    assert words.endswith("--entrypoint server tools:1 --x")
    assert "A=1" not in words, "the environment would be seen by every user of the machine"


@pytest.mark.promise("BOX-05")
def test_a_container_that_is_prepared_is_removed_however_it_ends(root: Path, engine: Path) -> None:
    prepared = Container(engine="podman", image="tools:1").prepare(
        confined(Launch(argv=("server",), env=PATH, cwd=str(root)), root)
    )
    with prepared.opened:
        program = prepared.program
        env, rules = (os.pread(fd, 100_000, 0) for fd in program.descriptors)

    name = program.argv[program.argv.index("--name") + 1]
    assert program.farewell == (program.argv[0], "rm", "--force", name)
    assert (env, b'"io_uring_setup"' in rules) == (b"PATH=/usr/bin:/bin\n", True)


@pytest.mark.anyio
@pytest.mark.promise("BOX-05")
async def test_at_the_check_containers_of_dead_hosts_are_removed_and_those_of_live_ones_are_not(
    engine: Path,
) -> None:
    found = await Container(engine="podman", image="tools:1").check()

    assert (found.works, engine.read_text().splitlines()[-2:]) == (True, ["kill aaa", "rm --force aaa"])


@pytest.mark.anyio
@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize(
    ("engine_name", "image", "reason"),
    [
        ("podman", "", "No image is configured for podman"),
        ("podman", "other", "podman cannot give the image 'other': no such image"),
        ("no-such-engine", "x", "no-such-engine is missing"),
    ],
)
async def test_an_engine_that_cannot_serve_says_why(
    engine: Path, engine_name: str, image: str, reason: str
) -> None:
    found = await Container(engine=engine_name, image=image).check()

    assert (found.works, reason in found.reason) == (False, True), found


@pytest.mark.parametrize(
    ("walls", "message"),
    [
        (Confinement(network=("example.org",)), "containers have no network here"),
        (Confinement(roots=("/etc",)), "cannot be a root"),
        (Confinement(readable=("/no/such",)), "cannot be opened"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_what_containers_cannot_do_is_refused(root: Path, walls: Confinement, message: str) -> None:
    launch = Launch(argv=("x",), env=PATH, cwd=str(root), confinement=walls)

    with pytest.raises(HoldfastError, match=message):
        Container(engine="podman", image="tools:1").prepare(launch)


@pytest.mark.usefixtures("engine")
def test_names_that_an_engine_would_misread_are_refused(root: Path) -> None:
    odd = root / "a,b"
    odd.mkdir()

    for launch in (
        confined(Launch(argv=("x",), env=PATH, cwd=str(odd)), odd),
        confined(Launch(argv=("x",), env={"A": "1\nB=2"}, cwd=str(root)), root),
    ):
        with pytest.raises(HoldfastError, match=r"comma|newline"):
            Container(engine="podman", image="tools:1").prepare(launch)


def test_a_host_is_known_by_its_pid_and_its_start() -> None:
    pid, _, began = host_mark().partition(".")

    assert (host_lives(host_mark()), host_lives(f"{pid}.{int(began) + 1}"), host_lives("0.1"), host_lives("x")) == (True, False, False, False)  # fmt: skip
