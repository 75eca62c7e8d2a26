"""`holdfast servers approve`: review and approve servers and tools."""

import difflib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

import click
import msgspec

from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.output import ask, confirm, print_for_review, print_line, print_wrapped
from holdfast.cli.servers.review_server import ReviewCounts, ReviewOptions, Rights, review_servers
from holdfast.cli.servers.unknown_server import server_names, unknown_server
from holdfast.cli.user_name import user_name
from holdfast.host.approvals import mask_definition
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.guarded_names import WRITABLE_NAMES
from holdfast.model.server import Source
from holdfast.model.trust import Trust
from holdfast.model.visible_text import quote
from holdfast.resolve.load import PROJECT_FILE
from holdfast.resolve.screen_tools import ToolWithoutHints, WithheldTool
from holdfast.resolve.validate import is_network_grant
from holdfast.session.session import Session
from holdfast.wire.mcp.tools import Tool

_MAX_COMPARED_LINES = 2000  # the time to compare grows with the square of the number of lines
_NEW_TOOLS = "{} has tools that are new or have changed since you approved them:"
_HINTS = (
    "{} gives these hints about its tools. Until you approve them, Holdfast ignores the hints and asks"
    " you even before tools that claim to be read-only:"
)


@click.command()
@click.argument("names", nargs=-1)
@session_options
@click.option(
    "--confined", "rights", flag_value="confined", help="Approve the servers as confined, without asking."
)
@click.option(
    "--direct", "rights", flag_value="direct", help="Approve the servers with your rights, without asking."
)
@click.option(
    "--follow-edits",
    is_flag=True,
    help="With --direct: later edits of the files that are shown need no approval, until a confined server can write in the folder.",
)
@click.option(
    "--readable",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Another path that a confined server may read. Implies --confined. Can be repeated.",
)
@click.option(
    "--network",
    multiple=True,
    metavar="HOST",
    help="A host that a confined server may reach. Implies --confined. Can be repeated.",
)
@click.option(
    "--writable",
    multiple=True,
    metavar="NAME",
    type=click.Choice(WRITABLE_NAMES),
    help="A read-only name in the project's folder that a confined server may change, such as .git; . for the whole folder,"
    " if it is read-only because programs in it run with your rights. Implies --confined. Can be repeated.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Approve everything that is shown, without asking. Servers keep the rights of their last approval; a server that"
    " was never approved needs --confined or --direct, except in a sandboxed session, where it is confined.",
)
def approve(  # noqa: PLR0913 - the options of the command
    names: tuple[str, ...],
    options: SessionOptions,
    *,
    rights: str | None,
    follow_edits: bool,
    readable: tuple[Path, ...],
    network: tuple[str, ...],
    writable: tuple[str, ...],
    yes: bool,
) -> None:
    """Review and approve a project's servers, and new or changed tools.

    Shows each server of the project's .mcp.json that you have not approved, with the files that it runs. Then shows the
    tools that are new or have changed since you approved them. You are asked about each server, and about the tools of each
    server. With NAMES, only these servers.

    A server runs confined, in all sessions, or with your rights, in direct sessions. An approval is only for what was
    shown: after a change, the server or tool needs a new approval.

    Exit codes: 0 nothing awaits approval now, 1 something does, 2 invalid usage. With --confined or --direct and
    without a terminal, hints about tools that await approval do not change the exit code.

    \b
    Examples:
      holdfast servers approve
      holdfast servers approve github --confined
      holdfast servers approve github --confined --network api.github.com
      holdfast servers approve mine --direct --follow-edits
    """
    if follow_edits and rights != Rights.DIRECT:
        raise click.UsageError(
            "--follow-edits needs --direct: it works only for a server that runs with your rights."
        )
    if readable or network or writable:
        if rights == Rights.DIRECT:
            raise click.UsageError("--direct cannot be combined with --readable, --network or --writable.")
        rights = Rights.CONFINED
    for host in network:
        if not is_network_grant(host):
            raise click.UsageError(
                f"--network: {host[:80]!r} is not a host name. Write example.org or example.org:443."
            )
    is_asking = sys.stdin.isatty() and not yes

    async def ask_user(question: str) -> str:
        return ask(question)

    async def work(host: Host) -> int:
        open_options = options.to_open_options(keep=False)
        await _check_names_and_files(host, open_options, names)
        is_sandboxed = await host.trust_of(open_options) is Trust.SANDBOXED
        if follow_edits and is_sandboxed:
            raise HoldfastError(
                codes.NOT_APPROVED,
                "--follow-edits is for direct sessions, and sessions in this folder are sandboxed. Approve the server without it.",
            )
        review_options = ReviewOptions(
            ask=ask_user if is_asking else None,
            session_arguments=tuple(options.to_arguments()),
            rights=Rights(rights) if rights is not None else None,
            yes=yes,
            default_rights=Rights.CONFINED if is_sandboxed else None,
            follow_edits=follow_edits,
            readable=tuple(str(path.resolve()) for path in readable),
            network=network,
            writable=writable,
        )
        reviewed = await review_servers(host, open_options, review_options, names=names)
        async with open_session(host, open_options) as session:
            if yes or is_asking:
                reviewed += await _review_tools(host, session, names, yes=yes)
            else:
                reviewed += await _print_undecided_tools(
                    host, session, names, options.to_arguments(), chose_rights=rights is not None
                )
        if not reviewed.shown:
            print_line("Nothing awaits approval.")
        return reviewed.undecided

    if run_with_host(work):
        raise click.exceptions.Exit(1)


async def _check_names_and_files(host: Host, open_options: OpenOptions, names: tuple[str, ...]) -> None:
    """Raise for what is probably a mistake: an unknown name, an invalid `.mcp.json`, or one in a folder above instead of here."""
    loaded, resolution = await host.plan(open_options)
    for refusal in loaded.refusals:
        if PurePath(refusal.server).name == PROJECT_FILE:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"{quote(refusal.server)}: {refusal.reason}", hint="Correct the file."
            )
    known = server_names(loaded, resolution)
    unknown = [name for name in names if name not in known]
    if (unknown or not names) and not any(entry.source is Source.PROJECT for entry in loaded.entries):
        folder = await run_with_file_timeout(
            _find_folder_above, Path(open_options.cwd), path=str(open_options.cwd)
        )
        if folder is not None:
            command = shlex.join(["holdfast", "servers", "approve", *names, "--cwd", str(folder)])
            raise HoldfastError(
                codes.BAD_FOLDER,
                f"There is no {PROJECT_FILE} in {quote(str(open_options.cwd))}, but there is one in {quote(str(folder))}.",
                hint=f"To review its servers: {command}",
            )
    if unknown:
        raise unknown_server(unknown[0], loaded, resolution)


def _find_folder_above(folder: Path) -> Path | None:
    """The nearest folder above this one that has a `.mcp.json`."""
    return next((above for above in folder.parents if (above / PROJECT_FILE).is_file()), None)


async def _print_undecided_tools(
    host: Host, session: Session, names: tuple[str, ...], session_arguments: list[str], *, chose_rights: bool
) -> ReviewCounts:
    """Print the tools and hints to approve, and the command (with `session_arguments`) that approves them.

    With `chose_rights`, the user gave --confined or --direct. Then hints do not count as undecided: the tools can be used without them.
    """
    reviewed = ReviewCounts()
    for name, withheld, without_hints in _list_undecided_tools(session, names):
        if withheld:
            print_wrapped(_NEW_TOOLS.format(quote(name)))
            print_for_review(await _definition_lines(host, session, name, withheld))
        elif chose_rights:
            command = shlex.join(["holdfast", "servers", "approve", name, *session_arguments])
            print_wrapped(
                f"Hints about tools of {quote(name)} await approval. Until you approve them, Holdfast asks you even before tools that"
                f" claim to be read-only. To review them, run: {command}"
            )
            reviewed += ReviewCounts(shown=1)
            continue
        if without_hints:
            print_wrapped(_HINTS.format(quote(name)))
            print_for_review(await _definition_lines(host, session, name, without_hints))
        command = shlex.join(["holdfast", "servers", "approve", name, "--yes", *session_arguments])
        print_wrapped(f"Without a terminal, Holdfast cannot ask you. To approve them, run: {command}")
        reviewed += ReviewCounts(shown=1, undecided=1)
    return reviewed


async def _review_tools(host: Host, session: Session, names: tuple[str, ...], *, yes: bool) -> ReviewCounts:
    reviewed = ReviewCounts()
    for name, withheld, without_hints in _list_undecided_tools(session, names):
        if withheld:
            print_wrapped(_NEW_TOOLS.format(quote(name)))
            reviewed += await _review_definitions(host, session, name, withheld, yes=yes)
        if without_hints:
            print_wrapped(_HINTS.format(quote(name)))
            reviewed += await _review_definitions(host, session, name, without_hints, yes=yes)
    return reviewed


def _list_undecided_tools(
    session: Session, names: tuple[str, ...]
) -> Iterator[tuple[str, Sequence[WithheldTool], Sequence[ToolWithoutHints]]]:
    """Each server, its tools that await approval, and its tools whose hints await approval. With `names`, only these servers."""
    withheld, without_hints = session.awaiting_approval, session.offered_without_hints
    for name in dict.fromkeys((*withheld, *without_hints)):
        if not names or name in names:
            yield name, withheld.get(name, ()), without_hints.get(name, ())


async def _review_definitions(
    host: Host, session: Session, server: str, tools: Sequence[WithheldTool | ToolWithoutHints], *, yes: bool
) -> ReviewCounts:
    spec, user_id, mask = session.server(server), session.context.user_id or "", session.record.mask
    print_for_review(await _definition_lines(host, session, server, tools))
    is_approved = yes or confirm("Approve them as they are shown?")
    if is_approved:
        await host.approvals.approve_tools(
            spec,
            {tool.name: tool.fingerprint for tool in tools},
            by=user_name(),
            user_id=user_id,
            definitions=[tool.definition for tool in tools if tool.definition is not None],
            mask=mask,
        )
        print_line("  approved")
    return ReviewCounts(shown=1, undecided=int(not is_approved))


async def _definition_lines(
    host: Host, session: Session, server: str, tools: Sequence[WithheldTool | ToolWithoutHints]
) -> list[str]:
    """The definitions of tools, for review. Lines that changed since the last approval are marked with + and -."""
    spec, user_id, mask = session.server(server), session.context.user_id or "", session.record.mask
    lines: list[str] = []
    for tool in tools:
        approved = await host.approvals.last_definition(spec, tool.name, user_id=user_id, mask=mask)
        new_lines = [*describe_tool(tool.definition)]
        old_lines = _unmask([*describe_tool(approved)], tool.definition, mask)
        lines += (f"  {quote(tool.name)}", *(f"    {line}" for line in _mark_changes(old_lines, new_lines)))
    return lines


def _unmask(stored: list[str], definition: Tool | None, mask: Mask) -> list[str]:
    """The lines of a stored definition, which has secrets masked. Lines that differ from the new ones only by that are unmasked."""
    if definition is None:
        return stored
    masked = describe_tool(mask_definition(definition, mask))
    current = dict(zip(masked, describe_tool(definition), strict=False))
    return [current.get(line, line) for line in stored]


def _mark_changes(old_lines: list[str], new_lines: list[str]) -> Iterator[str]:
    """All lines. Added lines begin with +, and removed lines with -.

    If there is no earlier definition, or the new one is very long, the lines are not marked.
    """
    if not old_lines or old_lines == new_lines or len(new_lines) > _MAX_COMPARED_LINES:
        yield from new_lines
        return
    # With so many lines of context, the diff has all lines, after a header of three lines.
    lines = difflib.unified_diff(old_lines, new_lines, lineterm="", n=_MAX_COMPARED_LINES)
    yield from islice(lines, 3, None)


def describe_tool(definition: Tool | None) -> Iterator[str]:
    """Every line of a tool's definition, for review: its texts, annotations and schemas."""
    if definition is None:
        return
    content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(definition))
    for name, value in content.items():
        if name == "name":
            continue
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        first, *rest = text.split("\n")
        yield f"{name}: {first}"
        yield from (f"  {line}" for line in rest)
