"""How a local server's process is started and confined."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model.quota import DEFAULT_QUOTA, Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a confined process may access (folders, and by default no hosts), and its quota."""

    roots: tuple[str, ...] = ()
    """The real paths (without symbolic links) of the folders it may read and write."""
    readable: tuple[str, ...] = ()
    """Other paths it may read, such as the folder of a script; set by the host or the user."""
    network: tuple[str, ...] = ()
    """Hosts it may reach, as `example.org` or `example.org:443`; `*` for any host and port."""
    allowed_private_hosts: tuple[str, ...] = ()
    """Hosts that it may reach even at a private or local address; set only by the host's settings. `*` stands for any host
    at a private or loopback address, but never for link-local and metadata addresses."""
    denied_ports: tuple[int, ...] = ()
    """Ports that it may not reach at private and loopback addresses, even if the host is granted: Holdfast's own."""
    ports_data_dir: str = ""
    """A data folder of Holdfast. The ports on which its processes listen are also denied, even if they start to listen later. Empty for none."""
    unix_sockets: bool = False
    """Whether it may create Unix sockets. Only for a program whose roots contain no socket of another program. The container
    backend never allows them."""
    writable: tuple[str, ...] = ()
    """Names from `WRITABLE_NAMES`, such as `.git`, that it may change in its roots; set by the host or the user."""
    read_only: tuple[str, ...] = ()
    """The roots, among `roots`, that it may not change, because programs in them run unconfined in other sessions."""
    executed: tuple[str, ...] = ()
    """The programs of unconfined servers, and the folders of the `PATH`, that lie in its roots. It may not change the top-level entries of a
    root that contain them."""
    untrusted: tuple[str, ...] = ()
    """Readable folders that a confined process wrote, such as fetched packages. Links and files in them never decide what is mounted."""
    scripts: tuple[str, ...] | None = None
    """The scripts that its command names, such as `server.js` in `node server.js`. Their packages, and those that are installed as
    editable, are mounted read-only. None if only the runtime of the command is mounted, as for a client's server."""
    granted_paths: tuple[str, ...] | None = None
    """The paths outside of its roots that the user approved for its program: the sandbox mounts no others for it. None if no
    approval limits them."""
    protected: tuple[str, ...] = ()
    """Holdfast's own folders. The sandbox refuses to mount anything that contains one of them or is inside one."""
    quota: Quota = DEFAULT_QUOTA
    logs_refused: bool = True
    """Whether a warning is logged for each connection that is refused. False if the caller asks the user about refused hosts."""
    lower_priority: bool = True
    """Whether it gets less processor time than other programs. False for a program that the user of a direct session waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFor:
    """A server of a stored session. If containers are kept, its container is kept under these names."""

    session_id: str
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A process to start. `env` is its whole environment: nothing is inherited."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False, hash=False)
    cwd: str
    cwd_fd: int | None = None
    """An open descriptor of the folder `cwd`. An unconfined process starts in this folder, even if the path leads elsewhere by then."""
    confinement: Confinement | None = None
    kept_for: KeptFor | None = None
    """The server whose container is kept after the process has ended, if containers are kept. None: the container is removed."""
