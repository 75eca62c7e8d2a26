"""Attack 36: a program, link, `#!` line or `pyvenv.cfg` inside a root makes the sandbox mount something outside."""

import json
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.changeable_roots import CHANGEABLE_ROOTS_FILE, ChangeableRoots
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.trust import Trust
from holdfast.sandbox import protected_folders
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.bwrap.runtime import NO_UNTRUSTED, find_runtime
from holdfast.sandbox.protected_folders import why_not_mounted
from tests.connect.conftest import HostFactory, folder, make_host
from tests.sandbox.support import PATH, confined

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.usefixtures("bwrap")]


@pytest.fixture
def other(root: Path) -> Path:
    """Another project beside the root: a Python environment, a `node_modules` and a program of its own."""
    folder = root.parent / "other"
    for path in ("venv/bin/python", "node_modules/.bin/tool", "deploy"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("#!/bin/sh\necho deployed\n")
        (folder / path).chmod(0o755)
    (folder / "venv" / "lib").mkdir()
    (folder / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return folder


def _script(line: str) -> Callable[[Path, Path], None]:
    def write(program: Path, other: Path) -> None:
        program.write_text(f"{line.format(other=other)}\n")
        program.chmod(0o755)

    return write


def _link(target: str) -> Callable[[Path, Path], None]:
    return lambda program, other: program.symlink_to(other / target)


def _environment(program: Path, other: Path) -> None:
    shutil.copy(other / "deploy", program)
    (program.parent.parent / "pyvenv.cfg").write_text(f"home = {other}/venv/bin\n")


def _package(program: Path, other: Path) -> None:
    shutil.copy(other / "deploy", program)
    package = {
        "bin": {"server": f"{other}/deploy"},
        "main": f"{other}/deploy",
        "dependencies": {"x": f"file:{other}"},
    }
    (program.parent.parent / "package.json").write_text(json.dumps(package))
    (program.parent.parent / "node_modules").symlink_to(other / "node_modules")


ENV_FORMS = [
    "{deploy}",
    "-S {deploy}",
    "-S\t{deploy}",
    '-S "{deploy}"',
    "--split-string={deploy}",
    "-vS {deploy}",
    "-iS {deploy}",
    "-S -i {deploy}",
    "-S A=b {deploy}",
    "-S -C {other} ./deploy",
    "-S /usr/bin/env {deploy}",
]
"""Arguments of `env` in a `#!` line that make it execute a program of another project."""
ATTACKS = {
    "the environment of another project in a #! line": _script("#!{other}/venv/bin/python"),
    "a path through another project's node_modules": _script("#!{other}/node_modules/.bin/tool"),
    "any executable as an option of env": _script("#!/usr/bin/env -S -u {other}/deploy python3"),
    **{
        f"env {form}": _script(f"#!/usr/bin/env {form}".replace("{deploy}", "{other}/deploy"))
        for form in ENV_FORMS
    },
    "a link": _link("venv/bin/python"),
    "a link to a file": _link("deploy"),
    "the base of an environment": _environment,
    "a package file": _package,
}


@pytest.mark.promise("BOX-02", "BOX-06")
@pytest.mark.parametrize("attack", ATTACKS)
def test_program_in_a_root_mounts_nothing_outside(root: Path, other: Path, attack: str) -> None:
    program = root / "env" / "bin" / "server"
    program.parent.mkdir(parents=True)
    ATTACKS[attack](program, other)

    assert [path for path in mounted(program, root) if path.startswith(str(other))] == []


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("form", ENV_FORMS)
def test_path_after_env_is_ignored_outside_of_the_roots_too(root: Path, other: Path, form: str) -> None:
    program = root.parent / "server"
    ATTACKS[f"env {form}"](program, other)

    with ExitStack() as opened:
        spec = ProcessSpec(argv=(str(program),), env=PATH, cwd=str(root))
        assert find_runtime(spec, NO_UNTRUSTED, opened).paths == (str(program),)


@pytest.mark.parametrize("form", ENV_FORMS)
def test_control_env_executes_the_other_program(root: Path, other: Path, form: str) -> None:
    program = root.parent / "server"
    ATTACKS[f"env {form}"](program, other)

    done = subprocess.run([program], env=PATH, capture_output=True, text=True, check=True)

    assert done.stdout == "deployed\n"


@pytest.mark.parametrize(
    "attack",
    sorted(
        set(ATTACKS)
        - {"any executable as an option of env", "a package file", *(f"env {form}" for form in ENV_FORMS)}
    ),
)
def test_believing_what_lies_in_a_root_mounts_the_other_project(root: Path, other: Path, attack: str) -> None:
    program = root / "env" / "bin" / "server"
    program.parent.mkdir(parents=True)
    ATTACKS[attack](program, other)

    with ExitStack() as opened:
        spec = ProcessSpec(argv=(str(program),), env=PATH, cwd=str(root))
        believed = find_runtime(spec, NO_UNTRUSTED, opened).paths

    assert [path for path in believed if path.startswith(str(other))] != []


@pytest.mark.promise("BOX-06")
def test_root_of_another_server_decides_nothing_either(root: Path, other: Path) -> None:
    sandbox = BwrapSandbox()
    _link("venv/bin/python")(root / "server", other)
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()

    before = mounted(root / "server", elsewhere, sandbox)
    mounted(Path("/bin/true"), root, sandbox)  # from now on a server can write to `root`
    after = mounted(root / "server", elsewhere, sandbox)

    assert [any(path.startswith(str(other)) for path in paths) for paths in (before, after)] == [True, False]


def _editable_install(program: Path, other: Path) -> None:
    environment = program.parent.parent
    (environment / "lib/python3.11/site-packages").mkdir(parents=True)
    (environment / "lib/python3.11/site-packages/x.pth").write_text(f"{other}\n")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    program.symlink_to("/usr/bin/python3")


def _script_of_another_package(program: Path, other: Path) -> None:
    (other / "package.json").touch()
    (program.parent / "server.js").symlink_to(other / "deploy")
    shutil.copy(other / "deploy", program)


LEFT_BEHIND: dict[str, Callable[[Path, Path], None]] = {
    "a link": _link("venv/bin/python"),
    "a #! line": ATTACKS["the environment of another project in a #! line"],
    "the base of an environment": _environment,
    "an editable install": _editable_install,
    "a link to a script": _script_of_another_package,
}


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("left", LEFT_BEHIND)
def test_root_of_an_earlier_process_decides_nothing_either(root: Path, other: Path, left: str) -> None:
    program, elsewhere, data = (
        root / "env" / "bin" / "server",
        root.parent / "elsewhere",
        root.parent / "data",
    )
    program.parent.mkdir(parents=True)
    elsewhere.mkdir()
    scripts = (str(program.parent / "server.js"),)
    confinement = Confinement(roots=(str(elsewhere),), scripts=scripts)
    spec = ProcessSpec(argv=(str(program),), env=PATH, cwd=str(elsewhere), confinement=confinement)
    LEFT_BEHIND[left](program, other)

    control = BwrapSandbox(changeable_roots=ChangeableRoots(data / "file")).program_paths(spec)
    mounted(Path("/bin/true"), root, BwrapSandbox(changeable_roots=ChangeableRoots(data / "file")))
    after = BwrapSandbox(changeable_roots=ChangeableRoots(data / "file")).program_paths(spec)

    assert [any(path.startswith(str(other)) for path in paths) for paths in (control, after)] == [True, False]
    assert any(path.startswith(str(root)) for path in after), "the program itself is still mounted"


@pytest.mark.anyio
@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("trust", [Trust.SANDBOXED, Trust.DIRECT], ids=["attack", "control"])
async def test_folder_in_which_a_sandboxed_session_wrote_a_file_is_remembered(
    make_host: HostFactory, folder: Path, tmp_path: Path, trust: Trust
) -> None:
    async with make_host({}) as host, host.session(cwd=folder, trust=trust, permission="auto") as session:
        read = await session.call("files.list", {"path": "."})
        before = ChangeableRoots(host.settings.data_dir / CHANGEABLE_ROOTS_FILE).paths()
        written = await session.call("files.write", {"path": "venv/x.pth", "text": "/etc"})
        after = ChangeableRoots(host.settings.data_dir / CHANGEABLE_ROOTS_FILE).paths()

    assert (read.ok, written.ok, before) == (True, True, frozenset())
    assert after == ({str(folder)} if trust is Trust.SANDBOXED else frozenset())


@pytest.mark.promise("BOX-06", "BOX-08")
@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
def test_fetched_package_decides_nothing_about_the_mounts(
    root: Path, other: Path, is_protected: bool
) -> None:
    package = root.parent / "package"
    program = package / "env" / "bin" / "server"
    program.parent.mkdir(parents=True)
    _link("venv/bin/python")(program, other)
    confinement = Confinement(
        roots=(str(root),), readable=(str(package),), untrusted=(str(package),) if is_protected else ()
    )

    seen = BwrapSandbox().program_paths(
        ProcessSpec(argv=(str(program),), env=PATH, cwd=str(root), confinement=confinement)
    )

    assert any(path.startswith(str(other)) for path in seen) != is_protected


def _in_a_home(other: Path, monkeypatch: pytest.MonkeyPatch) -> Confinement:
    monkeypatch.setenv("HOME", str(other))
    return Confinement(scripts=(str(other / "deploy"),))


def _with_holdfasts_own_files(other: Path, monkeypatch: pytest.MonkeyPatch) -> Confinement:
    return Confinement(scripts=(str(other / "deploy"),), protected=(str(other / "data"),))


def _of_a_client(other: Path, monkeypatch: pytest.MonkeyPatch) -> Confinement:
    return Confinement(scripts=None)


def _control(other: Path, monkeypatch: pytest.MonkeyPatch) -> Confinement:
    return Confinement(scripts=(str(other / "deploy"),))


@pytest.mark.promise("BOX-06", "BOX-08")
@pytest.mark.parametrize("case", [_in_a_home, _with_holdfasts_own_files, _of_a_client, _control])
def test_package_of_a_script_is_not_mounted_if_it_holds_more_than_the_program(
    root: Path,
    other: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: Callable[[Path, pytest.MonkeyPatch], Confinement],
) -> None:
    (other / "package.json").touch()
    (other / "data").mkdir()
    confinement = replace(case(other, monkeypatch), roots=(str(root),))

    seen = BwrapSandbox().program_paths(
        ProcessSpec(argv=("/bin/sh", str(other / "deploy")), env=PATH, cwd=str(root), confinement=confinement)
    )

    assert (str(other) in seen) == (case is _control)


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_flipped_link_never_mounts_holdfasts_own_folder(root: Path, other: Path, where: str) -> None:
    data = root.parent / "data"
    (data / "lib" / "node_modules").mkdir(parents=True)
    (data / "bin").mkdir()
    shutil.copy(other / "deploy", data / "bin" / "key")
    link = (root if where == "inside" else root.parent) / "server"
    link.symlink_to(other / "deploy")
    seen: set[str] = set()
    refused = f"{str(data / 'bin')!r} cannot be mounted in a sandbox"
    both = {str(other / "deploy"), refused} if where == "outside" else {str(root)}

    with flipping(link, other / "deploy", data / "bin" / "key"):
        for attempt in range(1000):
            if attempt >= 25 and both <= seen:
                break
            try:
                seen.update(mounted(link, root, protected=(str(data),)))
            except HoldfastError as error:
                seen.add(error.message.partition(":")[0])

    assert both <= seen, "not both targets were met"
    assert [path for path in seen if path.startswith(str(data))] == []


def test_following_the_link_again_after_the_check_mounts_the_folder(root: Path, other: Path) -> None:
    (root / "server").symlink_to(other / "deploy")

    assert os.path.realpath(root / "server") == str(other / "deploy")
    (root / "server").unlink()
    (root / "server").symlink_to(root.parent / "secret")

    shown = subprocess.run(
        ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
         "--ro-bind", root / "server", "/server", "/usr/bin/cat", "/server"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == "out of reach"


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("mounted_path", ["data", "data/keys", ".", "data/keys/key"])
def test_folder_that_shows_holdfasts_own_is_refused_at_the_mount(root: Path, mounted_path: str) -> None:
    keys = root / "data" / "keys"
    keys.mkdir(parents=True)
    (keys / "key").write_text("secret")
    path = os.path.normpath(root / mounted_path)
    confinement = Confinement(readable=(path,), protected=(str(root / "data"),))

    with pytest.raises(HoldfastError, match="overlaps with Holdfast's own files"):
        BwrapSandbox().prepare(ProcessSpec(argv=("true",), env=PATH, cwd="/", confinement=confinement))


@pytest.mark.promise("BOX-06")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
def test_bind_mount_of_holdfasts_own_folder_in_a_root_is_refused(root: Path) -> None:
    data = root.parent / "data" / "keys"
    data.mkdir(parents=True)
    (root / "innocent").mkdir()
    if subprocess.run(
        ["mount", "--bind", data, root / "innocent"], check=False, capture_output=True
    ).returncode:
        pytest.skip("may not mount here")
    try:
        shown = mounted(Path("/bin/true"), root)
        with pytest.raises(HoldfastError, match="overlaps with Holdfast's own files"):
            mounted(Path("/bin/true"), root, protected=(str(data.parent),))
    finally:
        subprocess.run(["umount", root / "innocent"], check=True)

    assert str(root) in shown, "without the check, the root is mounted with the folder in it"


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize(
    "path", ["/proc", "/proc/1", "/proc/sys", "/sys", "/sys/kernel", "/dev", "/run", "/"]
)
def test_folders_of_the_kernel_are_not_mounted(
    root: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "settings of the kernel" in why_not_mounted([path], [])
    with pytest.raises(HoldfastError, match="settings of the kernel"):
        mounted(Path("/bin/true"), root, readable=(path,))
    monkeypatch.setattr(protected_folders, "_KERNEL_FOLDERS", ())
    monkeypatch.setattr(protected_folders, "_KERNEL_FILE_SYSTEMS", frozenset[str]())
    if path not in ("/", "/run"):  # they contain Holdfast's own folders
        assert path in mounted(Path("/bin/true"), root, readable=(path,)), "the control"


@pytest.mark.promise("BOX-06")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
@pytest.mark.parametrize("where", [".", "inner"])
def test_process_list_that_is_mounted_in_a_root_is_refused(root: Path, where: str) -> None:
    place = root / "project" / where
    place.mkdir(parents=True)
    shown = mounted(Path("/bin/true"), root / "project")
    if subprocess.run(["mount", "-t", "proc", "proc", place], check=False, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        with pytest.raises(HoldfastError, match="settings of the kernel"):
            mounted(Path("/bin/true"), root / "project")
        with pytest.raises(HoldfastError, match="settings of the kernel"):
            mounted(Path("/bin/true"), root, readable=(str(root / "project"),))
    finally:
        subprocess.run(["umount", place], check=True)

    assert str(root / "project") in shown, "without the mount, the folder is shown"


def mounted(
    program: Path,
    root: Path,
    sandbox: BwrapSandbox | None = None,
    protected: tuple[str, ...] = (),
    readable: tuple[str, ...] = (),
) -> set[str]:
    """The paths that bubblewrap would mount or link for this program."""
    spec = confined(
        ProcessSpec(argv=(str(program),), env=PATH, cwd=str(root)),
        root,
        protected=protected,
        readable=readable,
    )
    prepared = (sandbox or BwrapSandbox()).prepare(spec)
    with prepared.after_exit, prepared.after_setup, prepared.resources:
        assert prepared.ready_fd is not None
        assert prepared.start_fd is not None
        os.close(prepared.ready_fd)
        os.close(prepared.start_fd)
        words = os.pread(prepared.request.descriptors[0], 1 << 20, 0).decode().split("\0")
    options = ("--bind-fd", "--ro-bind-fd", "--symlink")
    return {words[at + 2] for at, word in enumerate(words) if word in options}


@contextmanager
def flipping(link: Path, *targets: Path) -> Iterator[None]:
    """Point a link to one target and the other, as fast as possible."""
    stop, dice, spare = threading.Event(), random.Random(36), link.with_name("spare")

    def flip() -> None:
        while not stop.is_set():
            for target in targets:
                spare.symlink_to(target)
                spare.replace(link)
                stop.wait(dice.random() * 0.002)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
