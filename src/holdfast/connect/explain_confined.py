"""Explains why a confined server failed: which paths it cannot see, which hosts it may not reach, and how to allow them."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from holdfast.model.guarded_names import WRITABLE_NAMES
from holdfast.model.mounts import is_within
from holdfast.model.process import Confinement
from holdfast.model.real_path import real_path
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.visible_text import display_path, to_line
from holdfast.sandbox.read_only_names import top_level_names
from holdfast.sandbox.view import RefusedHost, SandboxView, without_default_port

_MAX_PATHS = 3
_MAX_HOSTS = 5
_MAX_CANDIDATES = 50
_MAX_SCANNED = 20_000
# A path in quotation marks, or up to the next blank, as in "Cannot find module '/x/y.js'".
_QUOTED_PATH = re.compile(r"""['"`](/[^'"`\n]{2,500})['"`]""")
_BARE_PATH = re.compile(r"(?:^|[\s(=:])(/[\w.@+/-]{2,500})", re.MULTILINE)
_UNRESOLVED_HOST = re.compile(
    r"(?:ENOTFOUND|EAI_AGAIN|resolve host:?|resolve|resolving|host=|lookup|dns error for)\s*['\"(]?"
    r"((?:[A-Za-z0-9_-]{1,63}\.)+[A-Za-z]{2,})",
    re.IGNORECASE,
)
_NO_NETWORK = re.compile(
    r"Name or service not known|Temporary failure in name resolution|nodename nor servname|Network is unreachable"
    r"|[Cc]ould not resolve|dns error|\bgetaddrinfo\b|\bEAI_AGAIN\b|\bENOTFOUND\b|\bENETUNREACH\b"
)
_READ_ONLY = re.compile(r"^.*(?:\bEROFS\b|read-only file ?system).*$", re.IGNORECASE | re.MULTILINE)
_ANY_PATH = re.compile(r"""(?:^|[\s'"`(=:])(\.?[\w.@+/-]{2,500})""")
# Every sandbox replaces these folders with its own.
_REPLACED_FOLDERS = ("/", "/tmp", "/run", "/proc", "/dev", "/home", "/root")
# Paths with secrets, which no program needs in order to start. A server could print such a path to have it suggested.
_PRIVATE_NAMES = re.compile(
    r"/\.(?:ssh|gnupg|aws|azure|kube|docker|netrc|npmrc|pypirc|git-credentials|config)(?:/|$)"
)


def explain_start(spec: ServerSpec, view: SandboxView, written: str) -> str:
    """Why a confined server may have failed to start, and how to correct it; empty if nothing was found.

    `written` is what the server wrote to standard error. Call this in a thread, because it accesses files.
    """
    written = written[-_MAX_SCANNED:]
    candidates = (*_paths_in_command(spec), *_paths_in_text(written))
    return _explain(spec, view, candidates, view.refused_hosts, written)


def explain_call(spec: ServerSpec, view: SandboxView, refused: Sequence[RefusedHost], written: str) -> str:
    """Why a call of a confined server may have failed, and how to correct it; empty if nothing was found.

    `refused` are the hosts that the sandbox refused during the call. `written` is what the server wrote to standard error,
    and what the tool answered. The answer may repeat any path that the model chose, so only paths of the server's own command
    and variables are named, and guarded names in its folder. Call this in a thread, because it accesses files.
    """
    written = written[-_MAX_SCANNED:]
    candidates = [path for path in _paths_in_command(spec) if path in written]
    return _explain(spec, view, candidates, refused, written)


def explain_refused_hosts(spec: ServerSpec, hosts: Sequence[RefusedHost]) -> str:
    """Which hosts the sandbox refused to a confined server, and how to allow them."""
    return "\n".join(_explain_hidden_and_refused(spec, [], hosts))


def _explain(
    spec: ServerSpec,
    view: SandboxView,
    candidates: Sequence[str],
    refused: Sequence[RefusedHost],
    written: str,
) -> str:
    """Explain a failure from the paths among `candidates` that are hidden, the refused hosts, and the server's output."""
    paths = [*_hidden_paths(spec, view, candidates)]
    hosts = [*refused, *_unresolved_hosts(written)]
    return "\n".join(
        (
            *_explain_hidden_and_refused(spec, paths, hosts),
            *_explain_no_network(spec, hosts, written),
            *_explain_read_only(spec, written),
        )
    )


def _unresolved_hosts(written: str) -> Iterator[RefusedHost]:
    """The hosts whose addresses the server could not look up, according to its own output."""
    for host in dict.fromkeys(_UNRESOLVED_HOST.findall(written)):
        yield RefusedHost(endpoint=host)


def _explain_no_network(spec: ServerSpec, hosts: Sequence[RefusedHost], written: str) -> Iterator[str]:
    """Explain that the server has no network, if its output does not name the host that it could not reach."""
    has_network = spec.confinement is None or bool(spec.confinement.network)
    if not hosts and not has_network and _NO_NETWORK.search(written):
        yield f"It runs confined and may not use the network: {_how_to_grant(spec, 'network', ['HOST'])}"


def _explain_read_only(spec: ServerSpec, written: str) -> Iterator[str]:
    """Explain where the server may write, if it tried to write where it may only read."""
    confinement = spec.confinement
    if confinement is None or not (lines := _READ_ONLY.findall(written)):
        return
    paths = islice((match[1] for line in lines for match in _ANY_PATH.finditer(line)), _MAX_CANDIDATES)
    names = dict.fromkeys(name for path in paths for name in _read_only_names(confinement, path))
    if names:
        shown = ", ".join("its folder" if name == "." else f"{name} in its folder" for name in names)
        values = [*dict.fromkeys((*confinement.writable, *names))]
        yield f"It runs confined and can read {shown}, but not change it: {_how_to_grant(spec, 'writable', values)}"
        return
    folders = ", ".join(map(to_line, confinement.roots[:_MAX_PATHS]))
    own_tmp = "in its own /tmp (which is removed when it ends)"
    where = f"in {folders}, and {own_tmp}" if folders else own_tmp
    entry = f"its entry in {display_path(spec.origin)}" if spec.origin else "its entry"
    again = " Then approve it again." if spec.source is Source.PROJECT else ""
    yield (
        f"It runs confined and tried to write where it can only read, such as in the folder of its package. It can write {where}. "
        "If the server has an argument or a variable for the path that it writes to, set it to a path there, with "
        f'"args" or "env" in {entry}.{again}'
    )


def _read_only_names(confinement: Confinement, path: str) -> Iterator[str]:
    """The name to make writable so that the server can change this path; `.` if its whole folder is read-only. At most one."""
    for root in confinement.roots:
        real = os.path.normpath(os.path.join(root, path))  # noqa: PTH118 - not a path yet
        if not real.startswith(f"{root}/"):
            continue
        name = real.removeprefix(f"{root}/").partition("/")[0]
        if name in WRITABLE_NAMES and name not in confinement.writable:
            yield name
        elif path.startswith("/") and (
            root in confinement.read_only or top_level_names(root, confinement.executed) & {".", name}
        ):
            yield "."
        return


def _explain_hidden_and_refused(
    spec: ServerSpec, paths: Sequence[str], refused: Sequence[RefusedHost]
) -> Iterator[str]:
    """Explain how to make hidden paths visible, and how to allow refused hosts."""
    paths, refused = paths[:_MAX_PATHS], refused[:_MAX_HOSTS]
    hosts = [without_default_port(host.endpoint) for host in refused if not host.reason]
    if paths:
        yield f"It runs confined and cannot see {', '.join(map(to_line, paths))}: {_how_to_grant(spec, 'readable', paths)}"
    if hosts:
        yield f"It runs confined and tried to reach {', '.join(map(to_line, hosts))}: {_how_to_grant(spec, 'network', hosts)}"
    for host in refused:
        if host.reason:
            yield f"It runs confined, and may not reach a host that was granted: {to_line(host.reason)}"


def _how_to_grant(spec: ServerSpec, key: str, values: Sequence[str]) -> str:
    """The line to add, or the command to run, that grants these paths or hosts."""
    match spec.source:
        case Source.PROJECT:
            options = [word for value in values for word in (f"--{key}", value)]
            command = shlex.join(["holdfast", "servers", "approve", spec.name, "--confined", *options])
            return f"to allow that, run: {command}"
        case Source.CLIENT:
            return 'a server that a client brings gets no more than the session\'s folders. Configure it in your own list of servers, with "confined": true.'
        case _:
            assert isinstance(spec.transport, Stdio)
            granted: tuple[str, ...] = getattr(spec.transport, key)
            line = f'"{key}": {json.dumps([*dict.fromkeys((*granted, *values))])}'
            change = f"set {line} in" if granted else f"add {line} to"
            return f"to allow that, {change} its entry in {spec.origin or 'its configuration'}."


def _hidden_paths(spec: ServerSpec, view: SandboxView, candidates: Sequence[str]) -> Iterator[str]:
    """The paths among `candidates` that exist but are hidden from the server."""
    hidden: dict[str, None] = {}
    for path in dict.fromkeys(candidates):
        normal = os.path.normpath(path)
        if view.can_see(normal) or _is_never_suggested(spec, normal):
            continue
        if os.path.lexists(normal) and not any(normal.startswith(f"{folder}/") for folder in hidden):
            with suppress(OSError):  # too many symbolic links
                hidden[real_path(normal)] = None
    yield from hidden


def _is_never_suggested(spec: ServerSpec, path: str) -> bool:
    """Whether a path must not be suggested: every sandbox replaces it, it may contain secrets, or it belongs to Holdfast."""
    protected = spec.confinement.protected if spec.confinement is not None else ()
    return (
        path in _REPLACED_FOLDERS
        or _PRIVATE_NAMES.search(path) is not None
        or any(is_within(own, path) or is_within(path, own) for own in protected)
    )


def _paths_in_command(spec: ServerSpec) -> Iterator[str]:
    assert isinstance(spec.transport, Stdio)
    roots = spec.confinement.roots if spec.confinement is not None else ()
    for word in (*spec.transport.args, *spec.transport.env.values()):
        for part in (word, word.partition("=")[2]):
            if "\0" in part or len(part) > 4096:
                continue
            if part.startswith("/") and part != "/":
                yield part
            elif part.startswith("../") and roots:
                yield f"{roots[0]}/{part}"


def _paths_in_text(text: str) -> Iterator[str]:
    count = 0
    for pattern in (_QUOTED_PATH, _BARE_PATH):
        for match in pattern.finditer(text):
            if "\0" in match[1] or count >= _MAX_CANDIDATES:
                continue
            count += 1
            yield match[1]
