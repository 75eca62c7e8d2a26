"""The container backend with a stub engine; no podman or docker is needed."""

import os
import pwd
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import GUARDED_NAMES
from holdfast.model.ids import new_session_id
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.quota import Quota
from holdfast.sandbox.container.container import (
    ContainerSandbox,
    confinement_options,
    host_id,
    is_host_running,
)
from holdfast.sandbox.view import SandboxView
from tests.sandbox.support import PATH, confined

QUOTA = Quota(memory_bytes=400, processes=3, file_bytes=5, descriptors=6)


def joined_arguments(spec: ProcessSpec) -> str:
    assert spec.confinement is not None
    return " ".join(confinement_options(spec, spec.confinement, user=(7, 8)))


def sandbox(engine: str = "podman", image: str = "tools:1") -> ContainerSandbox:
    return ContainerSandbox(engine=engine, image=image, search_path=os.environ["PATH"])


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stub engine that logs its calls, and knows one image and two containers."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        'case "$1" in image) [ "$5" = tools:1 ] || { echo no such image; exit 1; };;\n'
        f"ps) echo aaa map[dev.holdfast.host:1.999 x:y]; echo bbb dev.holdfast.host={host_id()},x=y;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return calls


@pytest.mark.promise("BOX-05")
def test_every_restriction_becomes_an_argument(root: Path) -> None:
    spec = confined(ProcessSpec(argv=("server", "--x"), env={"A": "1"}, cwd=str(root)), root, quota=QUOTA)

    arguments = joined_arguments(spec)

    for expected in (
        *(
            "--network none",
            "--cap-drop ALL",
            "--security-opt no-new-privileges",
            "--pids-limit 3",
        ),
        *("--memory 400 --memory-swap 400", "--ulimit=nofile=6:6", "--ulimit=fsize=5:5", f"--workdir {root}"),
        *(f"--mount type=bind,source={root},target={root}",),
        *("--user 7:8", "--pull never", "seccomp=/proc/self/fd/4"),
    ):
        assert expected in arguments
    assert "A=1" not in arguments, "every user of the machine could read the environment"


@pytest.mark.promise("BOX-05")
def test_container_is_removed_after_it_ends(root: Path, engine: Path) -> None:
    session_id = new_session_id()
    variables = {**PATH, "HOLDFAST_SESSION_ID": session_id}
    prepared = sandbox().prepare(
        confined(ProcessSpec(argv=("server", "--x"), env=variables, cwd=str(root)), root)
    )
    with prepared.resources:
        request = prepared.request
        env, profile = (os.pread(fd, 100_000, 0) for fd in request.descriptors)

    name = request.argv[request.argv.index("--name") + 1]
    assert name.startswith(f"holdfast-{session_id}-"), "the operator sees which session it is for"
    assert request.cleanup == (request.argv[0], "rm", "--force", name)
    words = " ".join(request.argv)
    assert f"run --rm --interactive --name {name} --label dev.holdfast.host={host_id()} --read-only" in words
    assert words.endswith("--entrypoint server tools:1 --x")
    assert (env, b'"io_uring_setup"' in profile) == (
        b"PATH=/usr/bin:/bin\nHOLDFAST_SESSION_ID=%b\n" % session_id.encode(),
        True,
    )


@pytest.mark.promise("BOX-05")
@pytest.mark.usefixtures("engine")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to change the owner")
def test_server_does_not_get_the_group_of_its_folder(root: Path) -> None:
    owner = pwd.getpwnam("daemon")
    os.chown(root, owner.pw_uid, 4321)
    spec = confined(ProcessSpec(argv=("server",), env=PATH, cwd=str(root)), root)

    prepared = sandbox().prepare(spec)
    prepared.resources.close()
    argv = prepared.request.argv

    assert argv[argv.index("--user") + 1] == f"{owner.pw_uid}:{owner.pw_gid}"


@pytest.mark.promise("BOX-07")
@pytest.mark.usefixtures("engine")
def test_roots_and_readable_paths_count_as_visible(root: Path) -> None:
    readable, hidden = root.parent / "readable", root.parent / "hidden"
    readable.mkdir()
    spec = confined(ProcessSpec(argv=("server",), env=PATH, cwd=str(root)), root, readable=(str(readable),))

    prepared = sandbox().prepare(spec)
    with prepared.after_exit, prepared.after_setup, prepared.resources:
        view = SandboxView(prepared.visible)

    assert [view.can_see(f"{folder}/of/session/x") for folder in (root, readable, hidden)] == [
        True,
        True,
        False,
    ]


@pytest.mark.promise("BOX-01", "BOX-05")
@pytest.mark.usefixtures("engine")
def test_files_that_a_persons_programs_obey_are_mounted_read_only(root: Path) -> None:
    (root / ".git").mkdir()
    spec = confined(ProcessSpec(argv=("server",), env=PATH, cwd=str(root)), root, writable=(".claude",))

    prepared = sandbox().prepare(spec)
    with prepared.after_exit, prepared.after_setup, prepared.resources:
        placeholders = {path.name for path in root.iterdir()} - {".git"}
    argv = prepared.request.argv
    mounts = [argv[at + 1] for at, word in enumerate(argv) if word == "--mount"]

    assert mounts[0] == f"type=bind,source={root},target={root}"
    assert {mount.partition("target=")[2].removeprefix(f"{root}/") for mount in mounts[1:]} == {
        f"{name},readonly" for name in GUARDED_NAMES if name != ".claude"
    }
    assert placeholders == set(GUARDED_NAMES) - {".git", ".claude"}
    assert {path.name for path in root.iterdir()} == {".git"}


@pytest.mark.promise("BOX-01", "BOX-05")
@pytest.mark.usefixtures("engine")
def test_root_with_approved_programs_is_mounted_read_only(root: Path) -> None:
    (root / ".git").mkdir()
    spec = confined(
        ProcessSpec(argv=("server",), env=PATH, cwd=str(root)),
        root,
        read_only=(str(root),),
        writable=(".git",),
    )

    prepared = sandbox().prepare(spec)
    with prepared.after_exit, prepared.after_setup, prepared.resources:
        argv = prepared.request.argv

    assert [argv[at + 1] for at, word in enumerate(argv) if word == "--mount"] == [
        f"type=bind,source={root},target={root},readonly",
        f"type=bind,source={root}/.git,target={root}/.git",
    ]


@pytest.mark.promise("BOX-06")
@pytest.mark.usefixtures("engine")
def test_holdfasts_own_folder_is_refused(root: Path) -> None:
    (root / "data").mkdir()
    spec = confined(ProcessSpec(argv=("x",), env=PATH, cwd=str(root)), root, protected=(str(root / "data"),))

    with pytest.raises(HoldfastError, match="overlaps with Holdfast's own files"):
        sandbox().prepare(spec)


@pytest.mark.anyio
@pytest.mark.promise("BOX-05")
async def test_check_removes_containers_of_dead_hosts_only(
    engine: Path,
) -> None:
    availability = await sandbox().check()

    assert (availability.works, engine.read_text().splitlines()[-2:]) == (
        True,
        ["kill aaa", "rm --force aaa"],
    )


@pytest.mark.anyio
@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize(
    ("engine_name", "image", "reason"),
    [
        ("podman", "", "No image is configured for podman"),
        ("podman", "other", "podman cannot inspect the image 'other': no such image"),
        ("no-such-engine", "x", "no-such-engine is missing"),
    ],
)
async def test_unusable_engine_gives_the_reason(
    engine: Path, engine_name: str, image: str, reason: str
) -> None:
    availability = await sandbox(engine_name, image).check()

    assert (availability.works, reason in availability.reason) == (False, True), availability


@pytest.mark.anyio
@pytest.mark.promise("BOX-04")
async def test_engine_that_does_not_answer_gives_the_reason(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (engine.parent / "bin" / "podman").write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr("holdfast.sandbox.container.engine._SECONDS", 0.1)

    availability = await sandbox().check()

    assert (availability.works, availability.reason) == (False, "podman did not answer within 0.1 seconds.")


@pytest.mark.parametrize(
    ("confinement", "message"),
    [
        (Confinement(network=("example.org",)), "containers get no network"),
        (Confinement(roots=("/etc",)), "cannot be a root"),
        (Confinement(readable=("/no/such",)), "cannot be opened"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_unsupported_confinement_is_refused(root: Path, confinement: Confinement, message: str) -> None:
    spec = ProcessSpec(argv=("x",), env=PATH, cwd=str(root), confinement=confinement)

    with pytest.raises(HoldfastError, match=message):
        sandbox().prepare(spec)


@pytest.mark.usefixtures("engine")
def test_names_that_the_engine_would_misparse_are_refused(root: Path) -> None:
    odd = root / "a,b"
    odd.mkdir()

    for spec in (
        confined(ProcessSpec(argv=("x",), env=PATH, cwd=str(odd)), odd),
        confined(ProcessSpec(argv=("x",), env={"A": "1\nB=2"}, cwd=str(root)), root),
    ):
        with pytest.raises(HoldfastError, match=r"comma|newline"):
            sandbox().prepare(spec)


def test_host_is_identified_by_pid_and_start_time() -> None:
    pid, _, start_time = host_id().partition(".")

    assert (is_host_running(host_id()), is_host_running(f"{pid}.{int(start_time) + 1}"), is_host_running("0.1"), is_host_running("x")) == (True, False, False, False)  # fmt: skip
