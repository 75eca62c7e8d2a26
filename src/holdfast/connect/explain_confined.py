"""Explain what a confined server missed: paths that exist but that it cannot see, and hosts that it was refused."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from holdfast.model.mounts import is_within
from holdfast.model.real_path import real_path
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.visible_text import to_line
from holdfast.sandbox.view import SandboxView

_MAX_PATHS = 3
_MAX_HOSTS = 5
_MAX_CANDIDATES = 50
_MAX_SCANNED = 20_000
# A path in quotation marks, or up to the next blank, as in "Cannot find module '/x/y.js'".
_QUOTED_PATH = re.compile(r"""['"`](/[^'"`\n]{2,500})['"`]""")
_BARE_PATH = re.compile(r"(?:^|[\s(=:])(/[\w.@+/-]{2,500})", re.MULTILINE)
_UNRESOLVED_HOST = re.compile(
    r"(?:ENOTFOUND|EAI_AGAIN|resolve host:?|resolve|resolving|host=|lookup|dns error for)\s*['\"(]?"
    r"((?:[A-Za-z0-9_-]+\.)+[A-Za-z]{2,})",
    re.IGNORECASE,
)
_OWN_FOLDERS = ("/", "/tmp", "/run", "/proc", "/dev", "/home", "/root")
# What a program does not need in order to start. A server could name such a path to have it granted.
_PRIVATE_NAMES = re.compile(
    r"/\.(?:ssh|gnupg|aws|azure|kube|docker|netrc|npmrc|pypirc|git-credentials|config)(?:/|$)"
)


def explain_start(spec: ServerSpec, view: SandboxView, written: str) -> str:
    """Why a confined server may have failed to start, and what would help; empty if nothing was found. Blocks.

    `written` is what it wrote to standard error.
    """
    hosts = [*view.refused_hosts, *dict.fromkeys(_UNRESOLVED_HOST.findall(written[-_MAX_SCANNED:]))]
    return "\n".join(_sentences(spec, [*_hidden_paths(spec, view, written)], hosts))


def explain_refused_hosts(spec: ServerSpec, hosts: Sequence[str]) -> str:
    """Which hosts a confined server was refused during a call, and how to grant them."""
    return "\n".join(_sentences(spec, [], hosts))


def _sentences(spec: ServerSpec, paths: Sequence[str], hosts: Sequence[str]) -> Iterator[str]:
    paths, hosts = paths[:_MAX_PATHS], [_without_default_port(host) for host in hosts[:_MAX_HOSTS]]
    if paths:
        yield f"It runs confined and cannot see {', '.join(map(to_line, paths))}: {_how_to_grant(spec, 'readable', paths)}"
    if hosts:
        yield f"It runs confined and tried to reach {', '.join(map(to_line, hosts))}: {_how_to_grant(spec, 'network', hosts)}"


def _how_to_grant(spec: ServerSpec, key: str, values: Sequence[str]) -> str:
    """The exact line or command that grants something to a server."""
    match spec.source:
        case Source.PROJECT:
            options = [word for value in values for word in (f"--{key}", value)]
            command = shlex.join(["holdfast", "servers", "approve", spec.name, "--confined", *options])
            return f"to allow that, run: {command}"
        case Source.CLIENT:
            return "a server that a client brings gets no more than the session's folders. Configure it in your own list of servers."
        case _:
            return f'to allow that, add "{key}": {json.dumps([*values])} to its entry in {spec.origin or "its configuration"}.'


def _hidden_paths(spec: ServerSpec, view: SandboxView, written: str) -> Iterator[str]:
    """The paths that the command names, or that the server's last words name, which exist but are not visible in the sandbox."""
    found: dict[str, None] = {}
    for path in dict.fromkeys((*_paths_in_command(spec), *_paths_in_text(written[-_MAX_SCANNED:]))):
        normal = os.path.normpath(path)
        if view.can_see(normal) or _is_never_granted(spec, normal):
            continue
        if os.path.lexists(normal) and not any(normal.startswith(f"{other}/") for other in found):
            with suppress(OSError):  # too many links
                found[real_path(normal)] = None
    yield from found


def _is_never_granted(spec: ServerSpec, path: str) -> bool:
    """Whether a path must not be suggested: a folder that each sandbox has of its own, keys, or files of Holdfast."""
    protected = spec.confinement.protected if spec.confinement is not None else ()
    return (
        path in _OWN_FOLDERS
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
        for found in pattern.finditer(text):
            if "\0" in found[1] or count >= _MAX_CANDIDATES:
                continue
            count += 1
            yield found[1]


def _without_default_port(host: str) -> str:
    return host.removesuffix(":443").removesuffix(":80")
