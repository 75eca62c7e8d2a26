"""Run a confined server in a container, with podman or docker."""

import contextlib
import json
import os
import re
import secrets
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from holdfast.model import codes
from holdfast.model.confined_folders import locks_folder
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import parse_session_id
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.container.engine import Engine
from holdfast.sandbox.container.kept_containers import KeptContainers, config_digest, kept_name
from holdfast.sandbox.container.seccomp import seccomp_profile
from holdfast.sandbox.guards import Guard, GuardPlan, guard_roots, outermost
from holdfast.sandbox.keeper.spawn_request import SpawnRequest
from holdfast.sandbox.opened_path import PathOpener
from holdfast.sandbox.own_code import OWN_CODE
from holdfast.sandbox.protected_folders import ProtectedFolders
from holdfast.sandbox.rlimits import rlimits
from holdfast.sandbox.roots import open_no_symlinks, open_root
from holdfast.sandbox.sandbox import Availability, CachedCheck, PreparedProcess, open_memory_file
from holdfast.sandbox.user_and_group import server_user

_LABEL = "dev.holdfast.host"
_IN_USE_SECONDS = 5.0  # less than `_PREPARE_SECONDS` in `start_confined.py`
# Numbers of the descriptors passed to the engine: the environment, the seccomp profile.
_ENV_FD, _SECCOMP_FD = 3, 4


class ContainerSandbox:
    """A podman or docker sandbox.

    The image contains the server and its runtime. Only the server's roots and readable paths are mounted.
    """

    def __init__(
        self,
        *,
        engine: str,
        image: str,
        options: tuple[str, ...] = (),
        search_path: str | None = None,
        keep_in: Path | None = None,
    ) -> None:
        """`search_path` is where to find the engine: by default, the system's folders in the `PATH`.

        `keep_in` is the data folder whose sessions keep their containers. None: containers are removed when they end.
        """
        self.image = image
        self._engine = Engine(engine, options, search_path)
        self._kept = KeptContainers(self._engine, keep_in) if keep_in is not None else None
        self._in_use = _NamesInUse()
        self._checked = CachedCheck(self._check)

    @property
    def name(self) -> str:
        return self._engine.name

    async def check(self) -> Availability:
        """Check that the engine answers and has the image. Remove the containers of hosts that have died."""
        return await self._checked.result()

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Build the engine's command that starts a new container, or the one that was kept for this server."""
        engine = self._engine.find()
        if not engine:
            raise HoldfastError(codes.NO_SANDBOX, self._engine.missing_message)
        confinement = spec.confinement
        assert confinement is not None
        if confinement.network:
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {spec.argv[0]!r}: containers get no network. Use bubblewrap, or remove the server's 'network' list.",
            )
        with ExitStack() as resources, ExitStack() as after_exit, ExitStack() as after_setup:
            executed = (*OWN_CODE, os.path.realpath(engine), *confinement.executed)
            user, guarded = _open_paths(confinement, resources, after_setup, after_exit, executed)
            contents = (_encode_environment(spec), json.dumps(seccomp_profile()).encode())
            descriptors = tuple(open_memory_file(content, resources) for content in contents)
            options = confinement_options(spec, confinement, user=user, guards=guarded.guards)
            program = ("--entrypoint", spec.argv[0], self.image, *spec.argv[1:])
            if self._kept is not None and spec.kept_for is not None:
                name = kept_name(spec.kept_for)
                self._in_use.take(name, after_exit)
                config = config_digest((*options, *program), *contents)
                if self._kept.prepare_reuse(name, self.image, config):
                    arguments = ("start", "--attach", "--interactive", name)
                else:
                    labels = self._kept.labels(spec.kept_for, config)
                    arguments = ("run", "--interactive", "--name", name, *labels, *options, *program)
                cleanup = ("stop", "-t", "0", name)
            else:
                name = _container_name(spec)
                arguments = (*_temporary_run_arguments(name), *options, *program)
                cleanup = ("rm", "--force", name)
            request = SpawnRequest(
                argv=self._engine.command(*arguments),
                env=self._engine.environment(),
                cwd="/",
                descriptors=descriptors,
                cleanup=self._engine.command(*cleanup),
            )
            return PreparedProcess(
                request=request,
                visible=(*confinement.roots, *confinement.readable),
                resources=resources.pop_all(),
                guarded_roots=guarded.watched,
                packages=guarded.packages,
                after_setup=after_setup.pop_all(),
                after_exit=after_exit.pop_all(),
            )

    def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        """Empty: the image contains the program."""
        return ()

    async def _check(self) -> Availability:
        if not self.image:
            return Availability(
                works=False,
                reason=f"No image is configured for {self.name}. Set sandbox.image to an image that contains the servers.",
            )
        if not self._engine.find():
            return Availability(works=False, reason=self._engine.missing_message)
        try:
            code, output = await self._engine.run("image", "inspect", "--format", "{{.Id}}", self.image)
        except TimeoutError as error:
            return Availability(works=False, reason=f"{error}.")
        if code != 0:
            return Availability(
                works=False,
                reason=f"{self.name} cannot inspect the image {self.image!r}: {output.rstrip('.')}. Pull or build it, or set"
                " sandbox.image to another image.",
            )
        with contextlib.suppress(TimeoutError):
            await self._remove_orphans()
        return Availability(works=True)

    async def _remove_orphans(self) -> None:
        _, output = await self._engine.run(
            "ps", "--all", "--filter", f"label={_LABEL}", "--format", "{{.ID}} {{.Labels}}"
        )
        labels = re.findall(rf"^(\S+) .*{re.escape(_LABEL)}[=:]([0-9.]+)", output, re.MULTILINE)
        orphans = [container for container, host in labels if not is_host_running(host)]
        if orphans:
            await self._engine.run("kill", *orphans)  # podman's `rm` would first wait for a graceful stop
            await self._engine.run("rm", "--force", *orphans)


class _NamesInUse:
    """The names of the kept containers that run now. A server is started again only after its container has stopped."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._changed = threading.Condition()

    def take(self, name: str, until: ExitStack) -> None:
        """Wait until the name is free, and hold it until `until` is closed. Blocks."""
        with self._changed:
            if not self._changed.wait_for(lambda: name not in self._names, _IN_USE_SECONDS):
                raise HoldfastError(
                    codes.SPAWN_FAILED, f"The container {name!r} has not stopped yet. Try again later."
                )
            self._names.add(name)
        until.callback(self._free, name)

    def _free(self, name: str) -> None:
        with self._changed:
            self._names.discard(name)
            self._changed.notify_all()


def _temporary_run_arguments(name: str) -> tuple[str, ...]:
    """The engine's arguments for a container that is removed when it ends, and whose root file system is read-only."""
    return (
        *("run", "--rm", "--interactive", "--name", name, "--label", f"{_LABEL}={host_id()}"),
        "--read-only",
    )


def confinement_options(
    spec: ProcessSpec, confinement: Confinement, *, user: tuple[int, int], guards: tuple[Guard, ...] = ()
) -> tuple[str, ...]:
    """The engine's options that confine the server."""
    quota = confinement.quota
    uid, gid = user
    guarded = {guard.target.path for guard in guards}
    mounts = [
        *(_bind_mount(root, "") for root in outermost(confinement.roots) if root not in guarded),
        *(_bind_mount(path, ",readonly") for path in confinement.readable),
        *(
            _bind_mount(guard.target.path, ",readonly" if guard.is_read_only else "")
            for guard in sorted(guards, key=lambda guard: guard.target.path.count("/"))
        ),
    ]
    return (
        *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--security-opt", f"seccomp=/proc/self/fd/{_SECCOMP_FD}", "--pids-limit", str(quota.processes)),
        *("--memory", str(quota.memory_bytes), "--memory-swap", str(quota.memory_bytes)),
        *(f"--ulimit={name}={value}:{value}" for name, value in rlimits(quota).items()),
        # Set, because the engine's default may exceed its own hard limit, and then the start fails. `--pids-limit` is the real limit.
        "--ulimit=nproc=4096:4096",
        *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={quota.memory_bytes // 4}", "--user", f"{uid}:{gid}"),
        *("--env-file", f"/proc/self/fd/{_ENV_FD}", "--workdir", spec.cwd, "--pull", "never"),
        *(word for mount in mounts for word in ("--mount", mount)),
    )


def _container_name(spec: ProcessSpec) -> str:
    """A name with the id of the session that the server runs for, if it runs for one."""
    try:
        owner = f"{parse_session_id(spec.env.get('HOLDFAST_SESSION_ID', ''))}-"
    except HoldfastError:
        owner = ""
    return f"holdfast-{owner}{secrets.token_hex(8)}"


def host_id() -> str:
    """This process's pid and start time, which together identify it even after the pid is reused."""
    pid = os.getpid()
    return f"{pid}.{_start_time(pid)}"


def is_host_running(host: str) -> bool:
    """Whether the process with this `host_id` still runs."""
    pid, _, start_time = host.partition(".")
    return pid.isdecimal() and _start_time(int(pid)) == start_time != ""


def _start_time(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _open_paths(
    confinement: Confinement,
    resources: ExitStack,
    after_setup: ExitStack,
    after_exit: ExitStack,
    executed: Iterable[str],
) -> tuple[tuple[int, int], GuardPlan]:
    """Open all paths, and guard the roots. Return the uid and gid for the container, and the guards.

    Raise if a path contains a symbolic link, or overlaps with Holdfast's own folders.
    """
    protected = ProtectedFolders((*confinement.protected, str(locks_folder())), resources)
    roots = [open_root(root, PathOpener(resources)) for root in outermost(confinement.roots)]
    readable = [open_no_symlinks(path, PathOpener(resources)) for path in confinement.readable]
    for opened in (*roots, *readable):
        protected.check(opened)
    guarded = guard_roots(roots, confinement, resources, after_setup, after_exit, executed)
    return server_user(roots[0] if roots else None), guarded


def _bind_mount(path: str, options: str) -> str:
    if any(character in path for character in ',"\n'):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{path!r} cannot be mounted in a container: its path contains a comma, a quote or a newline. Rename it.",
        )
    return f"type=bind,source={path},target={path}{options}"


def _encode_environment(spec: ProcessSpec) -> bytes:
    for name, value in spec.env.items():
        if "\n" in name + value:
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"The variable {name!r} contains a newline, which container engines do not accept. Remove it.",
            )
    return "".join(f"{name}={value}\n" for name, value in spec.env.items()).encode()
