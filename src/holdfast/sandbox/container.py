"""Containers: a confined server in an image of its own, where an engine is configured."""

import asyncio
import json
import os
import re
import secrets
import shutil
from contextlib import ExitStack
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox import rules
from holdfast.sandbox.program import Program
from holdfast.sandbox.roots import open_real, open_root
from holdfast.sandbox.sandbox import Availability, Prepared

_LABEL = "dev.holdfast.host"
_SECONDS = 60.0
# Descriptors of the program: the environment, the filter.
_ENV_FD, _FILTER_FD = 3, 4


class Container:
    """A sandbox of podman's or docker's. The image brings the runtime; nothing of the host's is shown but roots."""

    def __init__(self, *, engine: str, image: str, options: tuple[str, ...] = ()) -> None:
        self.engine, self.image, self.options = engine, image, options
        self._looking = asyncio.Lock()
        self._found: Availability | None = None

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine

    async def check(self) -> Availability:
        """Whether the engine answers and has the image; containers that a dead host left behind are removed."""
        async with self._looking:
            if self._found is None:
                self._found = await self._look()
        return self._found

    def prepare(self, launch: Launch) -> Prepared:
        """Put the walls into the engine's words."""
        engine = shutil.which(self.engine)
        if engine is None:
            raise HoldfastError(codes.NO_SANDBOX, self._missing())
        confinement = launch.confinement
        assert confinement is not None
        if confinement.network:
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {launch.argv[0]!r}: containers have no network here. Use bubblewrap, or take 'network' away.",
            )
        for root in confinement.roots:
            os.close(open_root(root))
        for place in confinement.readable:
            os.close(open_real(place))
        name = f"holdfast-{secrets.token_hex(8)}"
        with ExitStack() as opened:
            contents = (_environment(launch), json.dumps(rules.profile()).encode())
            descriptors = tuple(_memory(content, opened) for content in contents)
            program = Program(
                argv=(engine, *self.options, *arguments(launch, confinement, name=name, image=self.image)),
                env={key: os.environ[key] for key in _ENGINE_ENV if key in os.environ},
                cwd="/",
                descriptors=descriptors,
                farewell=(engine, *self.options, "rm", "--force", name),
            )
            return Prepared(program=program, opened=opened.pop_all())

    async def _look(self) -> Availability:
        if not self.image:
            return Availability(
                works=False,
                reason=f"No image is configured for {self.engine}. Name one that has the servers.",
            )
        if shutil.which(self.engine) is None:
            return Availability(works=False, reason=self._missing())
        code, words = await self._run("image", "inspect", "--format", "{{.Id}}", self.image)
        if code != 0:
            return Availability(
                works=False, reason=f"{self.engine} cannot give the image {self.image!r}: {words}"
            )
        await self._remove_orphans()
        return Availability(works=True)

    async def _remove_orphans(self) -> None:
        _, words = await self._run(
            "ps", "--all", "--filter", f"label={_LABEL}", "--format", "{{.ID}} {{.Labels}}"
        )
        marks = re.findall(rf"^(\S+) .*{re.escape(_LABEL)}[=:]([0-9.]+)", words, re.MULTILINE)
        orphans = [container for container, mark in marks if not host_lives(mark)]
        if orphans:
            await self._run("kill", *orphans)  # podman's rm would first wait for it to go by itself
            await self._run("rm", "--force", *orphans)

    async def _run(self, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            self.engine, *self.options, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return 1, "it does not answer."
        return process.returncode or 0, output.decode(errors="replace").strip()

    def _missing(self) -> str:
        return (
            f"{self.engine} is missing. Install it, or take the engine out of the settings to use bubblewrap."
        )


_ENGINE_ENV = (
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DOCKER_HOST",
    "CONTAINER_HOST",
)


def arguments(launch: Launch, confinement: Confinement, *, name: str, image: str) -> tuple[str, ...]:
    """Every argument of the engine's, from values alone."""
    quota = confinement.quota
    uid, gid = _owner(confinement)
    mounts = [
        *(_mount(root, "") for root in confinement.roots),
        *(_mount(place, ",readonly") for place in confinement.readable),
        *(f"type=tmpfs,target={place},readonly" for place in _hidden(confinement)),
    ]
    return (
        *("run", "--rm", "--interactive", "--name", name, "--label", f"{_LABEL}={host_mark()}"),
        *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--security-opt", f"seccomp=/proc/self/fd/{_FILTER_FD}", "--pids-limit", str(quota.processes)),
        *("--memory", str(quota.memory_bytes), "--memory-swap", str(quota.memory_bytes)),
        *("--ulimit", f"nofile={quota.descriptors}:{quota.descriptors}"),
        *("--ulimit", f"fsize={quota.file_bytes}:{quota.file_bytes}", "--ulimit", "core=0:0"),
        # An engine's own default may be more than it is allowed to set. `--pids-limit` is what limits.
        *("--ulimit", "nproc=4096:4096", "--ulimit", f"data={quota.memory_bytes}:{quota.memory_bytes}"),
        *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={quota.memory_bytes // 4}", "--user", f"{uid}:{gid}"),
        *("--env-file", f"/proc/self/fd/{_ENV_FD}", "--workdir", launch.cwd, "--pull", "never"),
        *(word for mount in mounts for word in ("--mount", mount)),
        *("--entrypoint", launch.argv[0], image, *launch.argv[1:]),
    )


def host_mark() -> str:
    """This process, in a way that no later one can be mistaken for."""
    pid = os.getpid()
    return f"{pid}.{_started(pid)}"


def host_lives(mark: str) -> bool:
    """Whether the process of this mark still runs."""
    pid, _, began = mark.partition(".")
    return pid.isdecimal() and _started(int(pid)) == began != ""


def _started(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    except (OSError, IndexError):
        return ""


def _owner(confinement: Confinement) -> tuple[int, int]:
    if os.geteuid() == 0 and confinement.roots:
        found = Path(confinement.roots[0]).lstat()
        return found.st_uid, found.st_gid
    return os.geteuid(), os.getegid()


def _hidden(confinement: Confinement) -> list[str]:
    hidden = map(os.path.realpath, confinement.hidden)
    return [place for place in hidden if any(place.startswith(f"{root}/") for root in confinement.roots)]


def _mount(place: str, how: str) -> str:
    if any(mark in place for mark in ',"\n'):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{place!r} cannot be shown in a container: its name has a comma, a quote or a newline. Rename it.",
        )
    return f"type=bind,source={place},target={place}{how}"


def _environment(launch: Launch) -> bytes:
    for name, value in launch.env.items():
        if "\n" in name + value:
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"The variable {name!r} has a newline, which containers cannot take. Remove it.",
            )
    return "".join(f"{name}={value}\n" for name, value in launch.env.items()).encode()


def _memory(content: bytes, opened: ExitStack) -> int:
    fd = os.memfd_create("holdfast")
    opened.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
