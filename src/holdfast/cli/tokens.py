"""`holdfast tokens`: create, list and revoke the tokens of MCP clients."""

import shlex
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.options import json_lines_option, json_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gateway.client_tokens import StoredToken, Tokens
    from holdfast.gateway.credential import Credential
    from holdfast.model.tool_pattern import ToolPattern

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_NEVER = "never"
_DEFAULT_EXPIRY, _DEFAULT_SECONDS = "90d", 90 * 86_400
_MAX_SECONDS = 100 * 366 * 86_400  # a much later time could not be printed


@click.group(cls=FullHelpGroup)
def tokens() -> None:
    """Create, list and revoke the tokens of MCP clients.

    An MCP client presents its token to `holdfast up`. The token decides in which workspace, with which trust and in which
    permission mode its sessions run, and which servers and tools they get. Only a hash of the token is kept.

    \b
    Examples:
      holdfast tokens create cursor
      holdfast tokens create ci --workspace blog --trust sandboxed --mode read-only --expires 12h
      holdfast tokens list
      holdfast tokens revoke cursor
    """


@tokens.command()
@click.argument("name")
@click.option("--workspace", metavar="SLUG", help="The only workspace that the token can use.")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    help="The folder of its sessions. Default: the workspace's folder, or the folder in which `holdfast up` runs.",
)
@click.option("--trust", metavar="LEVEL", help="The highest trust of its sessions: direct or sandboxed.")
@click.option(
    "--mode",
    metavar="MODE",
    help="The permission mode of its sessions: ask, auto or read-only. Default: ask.",
)
@click.option("--servers", metavar="NAMES", help="Only these servers, separated by commas. Default: all.")
@click.option(
    "--tools",
    metavar="PATTERNS",
    help="Only tools that match, such as git.log,files.*; separated by commas. Default: all.",
)
@click.option("--user", metavar="ID", help="The user that its sessions belong to.")
@click.option(
    "--expires",
    metavar="TIME",
    show_default=_DEFAULT_EXPIRY,
    help="When it expires: 30m, 12h, 90d, 52w, a date such as 2027-01-31, or never.",
)
@click.option(
    "--like",
    metavar="TOKEN",
    help="Copy the limits and the expiry of this token (its id or name); each other option that you give replaces one of them.",
)
@json_option
def create(
    name: str, *, as_json: bool, expires: str | None, like: str | None, **given: str | Path | None
) -> None:
    """Create a token, and print it once: it cannot be shown again.

    NAME is a label, such as the name of the client that will use the token. `holdfast up --print-config CLIENT` creates a token and prints the
    client's whole configuration.

    \b
    Example:
      holdfast tokens create cursor --workspace blog --expires 30d
    """
    tokens = open_tokens()
    original = _find_one(tokens, like, "--like") if like is not None else None
    same_name = [token for token in tokens.list() if token.name == name and _state(token) == "valid"]
    credential = _parse_credential(name, expires, given, original)
    _warn_about_servers(credential)
    token, stored = create_token(credential)
    if same_name:
        ids = ", ".join(other.id for other in same_name)
        print_line(f"Valid tokens named {name!r} already exist: {ids}.", err=True)
        print_line("To revoke one of them, pass its id: holdfast tokens revoke ID", err=True)
    if as_json:
        print_json({"token": token, **_to_json(stored)})
        return
    print_line(token)
    print_line(f"Created {stored.id} ({name}): {_describe(stored)}.", err=True)
    print_line("Keep the token secret. It is not stored, and cannot be shown again.", err=True)


@tokens.command("list")
@click.option("--all", "show_all", is_flag=True, help="Include revoked and expired tokens.")
@json_lines_option
def list_(*, show_all: bool, as_json: bool) -> None:
    """List the tokens, with what each may use.

    \b
    Example:
      holdfast tokens list
    """
    tokens = open_tokens().list()
    found = [token for token in tokens if show_all or _state(token) == "valid"]
    if as_json:
        for token in found:
            print_json(_to_json(token))
    elif not found:
        print_line(f"No {'' if show_all else 'valid '}tokens. To create one: holdfast tokens create NAME")
    else:
        rows = [[token.id, token.name, _state(token), _describe(token)] for token in found]
        print_table(("id", "name", "state", "limits"), rows)
    hidden = Counter(_state(token) for token in tokens if token not in found)
    if hidden and not as_json:
        parts = " and ".join(f"{count} {state}" for state, count in sorted(hidden.items()))
        print_line(f"Not shown: {parts}. To show all: holdfast tokens list --all", err=True)


@tokens.command()
@click.argument("ids_or_names", metavar="TOKEN...", nargs=-1, required=True)
@click.option("--all", "revoke_all", is_flag=True, help="Revoke all tokens with these names.")
@json_lines_option
def revoke(ids_or_names: tuple[str, ...], *, revoke_all: bool, as_json: bool) -> None:
    """Revoke tokens, by id or name. A running `holdfast up` ends their sessions within about a second.

    If several tokens have the same name, give an id, or revoke all of them with --all.

    \b
    Examples:
      holdfast tokens revoke cursor
      holdfast tokens revoke cursor zed
    """
    tokens = open_tokens()
    for id_or_name in ids_or_names:  # all are checked before any is revoked
        if revoke_all:
            tokens.find(id_or_name)
        else:
            _find_one(
                tokens, id_or_name, "holdfast tokens revoke", or_else="to revoke all of them, add --all"
            )
    revoked = tuple(token for id_or_name in ids_or_names for token in tokens.revoke(id_or_name))
    try:
        _audit("revoked", revoked)
    except HoldfastError as error:  # such as a full disk; the tokens are revoked nevertheless
        print_line(f"The revocation is not in the audit: {error.message}", err=True)
    if as_json:
        for token in revoked:
            print_json(_to_json(token))
    else:
        for token in revoked:
            print_line(f"Revoked {token.id} ({token.name}).")


def _find_one(tokens: "Tokens", id_or_name: str, usage: str, *, or_else: str = "") -> "StoredToken":
    """The token with this id or name. Raise if several have the name: the hint shows `usage` with an id, and then `or_else`."""
    found = tokens.find(id_or_name)
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"  {token.id}  {_state(token)}: {_describe(token)}" for token in found)
    raise HoldfastError(
        codes.BAD_ARGUMENT,
        f"{len(found)} tokens are named {id_or_name!r}:\n{listed}",
        hint=f"Give one of the ids, as in `{usage} {found[-1].id}`" + (f"; {or_else}." if or_else else "."),
    )


def _warn_about_servers(credential: "Credential") -> None:
    """Warn about servers that a token names although its sessions would not find them now, and if its trust leaves no server."""
    if not credential.servers and credential.trust is None:
        return
    from holdfast.cli.open_session import SessionOptions, run_with_host
    from holdfast.cli.servers.unknown_server import server_names
    from holdfast.host.host import Host
    from holdfast.host.open_options import OpenOptions
    from holdfast.model.server import Source
    from holdfast.model.trust import Trust

    named = credential.servers or frozenset[str]()
    cwd = Path(credential.cwd) if credential.cwd else Path()
    session_options = SessionOptions(cwd=cwd, workspace=credential.workspace, trust=None)
    folder = f"in {credential.cwd}" if credential.cwd else "here"

    opened = OpenOptions(cwd=cwd.absolute(), workspace=credential.workspace)

    async def find(host: Host) -> tuple[set[str], set[str], set[str]]:
        """The known servers, those that sessions with the token's trust get, and those that sessions with the highest trust get."""

        async def offered(trust: Trust | None) -> set[str]:
            _, resolution = await host.plan(replace(opened, trust=trust))
            names = {server.name for server in resolution.servers if server.source is not Source.BUILTIN}
            return names & named if named else names

        options = replace(opened, extra_builtins=named)
        return server_names(*await host.plan(options)), await offered(credential.trust), await offered(None)

    try:
        known, offered, offered_to_any = run_with_host(find)
    except HoldfastError:
        return  # the servers cannot be listed, but the token can be created
    if offered_to_any and not offered:
        explain = shlex.join(
            ["holdfast", "servers", "explain", min(offered_to_any), "--trust", str(credential.trust)]
        )
        print_line(
            f"Sessions with trust {credential.trust} get no server {folder} now. To see why: {session_options.add_to_commands(explain)}",
            err=True,
        )
    for name in sorted(named - known):
        print_line(
            f"There is no server {name!r} {folder} now. The token offers it once you have added it. "
            f"To list the servers: {session_options.add_to_commands('holdfast servers list')}",
            err=True,
        )


def open_tokens() -> "Tokens":
    """Open the folder with the stored tokens."""
    from holdfast import settings
    from holdfast.gateway.client_tokens import TOKENS_FOLDER, Tokens
    from holdfast.host.data_folder import check_data_folder

    data_dir = settings.load().data_dir
    check_data_folder(data_dir)
    return Tokens(data_dir / TOKENS_FOLDER)


def create_token(credential: "Credential") -> "tuple[str, StoredToken]":
    """Create a token, and record it in the audit. If it cannot be recorded, it is revoked.

    Returns the token for the client, and what is stored about it.
    """
    tokens = open_tokens()
    token, stored = tokens.create(credential)
    try:
        _audit("created", (stored,))
    except BaseException:
        tokens.revoke(stored.id)
        raise
    return token, stored


def _audit(outcome: str, tokens: "tuple[StoredToken, ...]") -> None:
    """Record that these tokens were created or revoked, and by whom."""
    from holdfast.audit.audit import Audit
    from holdfast.audit.record import AuditKind, AuditRecord
    from holdfast.cli.open_store import run_with_writable_store
    from holdfast.cli.user_name import user_name
    from holdfast.model.ids import SessionId
    from holdfast.model.trust import Trust
    from holdfast.store.store import Store

    async def write(store: Store, audit: Audit) -> None:
        for token in tokens:
            await audit.write(
                AuditRecord(
                    at=store.now(),
                    kind=AuditKind.TOKEN,
                    session_id=SessionId(""),
                    workspace_id=token.workspace,
                    trust_level=token.trust or Trust.DIRECT,
                    user_id=token.user_id or "",
                    outcome=outcome,
                    reason=f"token {token.id} ({token.name}), by {user_name()}: {_describe(token)}",
                )
            )

    run_with_writable_store(None, write, create=True)


def _parse_credential(
    name: str, expires: str | None, given: dict[str, str | Path | None], original: "StoredToken | None"
) -> "Credential":
    """What the new token allows: the given options, and for the others the limits of `original`, the token of `--like`."""
    from holdfast.gateway.credential import Credential
    from holdfast.model.permission import require_mode
    from holdfast.model.trust import parse_trust

    def text(option: str) -> str:
        return str(given[option] or "")

    # A script with an unset variable must not create a token without a limit.
    if empty := [option for option, value in given.items() if value is not None and not str(value).strip()]:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"--{empty[0]} is empty. Give it a value, or leave the option out: then "
            + (
                "the token has no such limit." if original is None else f"the limit of {original.id} is used."
            ),
        )
    if not name.strip() or name != name.strip():
        raise HoldfastError(codes.BAD_ARGUMENT, "A token needs a name, without leading or trailing spaces.")
    if given["cwd"] is not None and not Path(text("cwd")).is_dir():
        raise HoldfastError(codes.BAD_FOLDER, f"There is no folder {text('cwd')!r}.")
    if original is None:
        base = Credential(id="", expires_at=time.time() + _DEFAULT_SECONDS)
    else:
        base = original.to_credential()
    if expires is None and base.expires_at is not None and base.expires_at <= time.time():
        raise HoldfastError(codes.BAD_ARGUMENT, f"{base.id} has expired. Add --expires TIME.")
    return Credential(
        id="",
        name=name,
        cwd=base.cwd if given["cwd"] is None else str(Path(text("cwd")).absolute()),
        workspace=base.workspace if given["workspace"] is None else _check_workspace(text("workspace")),
        trust=base.trust if given["trust"] is None else parse_trust(text("trust")),
        mode=base.mode if given["mode"] is None else require_mode(text("mode")),
        servers=base.servers if given["servers"] is None else parse_names(text("servers")),
        tools=base.tools if given["tools"] is None else parse_patterns(text("tools")),
        user_id=base.user_id if given["user"] is None else text("user"),
        expires_at=base.expires_at if expires is None else parse_expiry(expires, time.time()),
    )


def parse_expiry(text: str, now: float) -> float | None:
    """Parse `30m`, `12h`, `90d`, `52w`, a date or `never` (None). A date means its first moment, in UTC."""
    if text == _NEVER:
        return None
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in _UNITS and len(text) < 8:
        seconds = int(text[:-1]) * _UNITS[text[-1]]
        if 0 < seconds <= _MAX_SECONDS:
            return now + seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _bad_expiry(text) from None
    expires_at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not now < expires_at <= now + _MAX_SECONDS:
        raise _bad_expiry(text)
    return expires_at


def _bad_expiry(text: str) -> HoldfastError:
    return HoldfastError(
        codes.BAD_ARGUMENT,
        f"--expires must be a time in the next 100 years such as 30m, 12h, 90d, 52w or 2030-01-31, or never; not {text[:40]!r}.",
    )


def _check_workspace(slug: str) -> str:
    if not slug:
        return ""
    from holdfast import settings
    from holdfast.workspaces import WORKSPACES_FOLDER, Registry

    return Registry(settings.load().data_dir / WORKSPACES_FOLDER).get(slug).slug


def parse_names(text: str | None) -> frozenset[str] | None:
    """Names separated by commas; None if there is no text."""
    return frozenset(_split(text)) if text else None


def parse_patterns(text: str | None) -> "tuple[ToolPattern, ...] | None":
    """Patterns of tools separated by commas; None if there is no text."""
    from holdfast.model.tool_pattern import parse_tool_patterns

    try:
        return parse_tool_patterns(_split(text)) if text else None
    except ValueError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"--tools {error}.") from None


def _split(text: str) -> list[str]:
    return [part for raw in text.split(",") if (part := raw.strip())]


def _state(token: "StoredToken") -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= time.time():
        return "expired"
    return "valid"


def _describe(token: "StoredToken") -> str:
    parts = [
        f"workspace {token.workspace}" if token.workspace else "",
        f"folder {token.cwd}" if token.cwd else "",
        f"trust {token.trust}" if token.trust else "",
        f"mode {token.mode or 'ask'}",
        f"servers {', '.join(token.servers)}" if token.servers is not None else "",
        f"tools {', '.join(token.tools)}" if token.tools is not None else "",
        "all servers and tools" if token.servers is None and token.tools is None else "",
        f"user {token.user_id}" if token.user_id else "",
        f"expires {_format_time(token.expires_at)}" if token.expires_at is not None else "never expires",
    ]
    return ", ".join(filter(None, parts))


def _format_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _to_json(token: "StoredToken") -> dict[str, object]:
    """The token as `--json` prints it, without its hash."""
    return {
        "id": token.id,
        "name": token.name,
        "state": _state(token),
        "workspace": token.workspace,
        "cwd": token.cwd,
        "trust": token.trust,
        "mode": token.mode or "ask",
        "servers": token.servers,
        "tools": token.tools,
        "user_id": token.user_id,
        "created_at": _iso(token.created_at),
        "expires_at": _iso(token.expires_at),
        "revoked_at": _iso(token.revoked_at),
    }


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
