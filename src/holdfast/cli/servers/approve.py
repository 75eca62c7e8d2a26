"""`holdfast servers approve`: review and approve servers and tools."""

import difflib
import getpass
import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.output import confirm, print_for_review, print_line, print_wrapped
from holdfast.cli.servers.describe_entry import describe_briefly, describe_entry, quote
from holdfast.host.approvals import mask_definition
from holdfast.host.host import Host
from holdfast.masking.mask import Mask
from holdfast.model.resolution import Stage
from holdfast.model.server import Source
from holdfast.resolve.entry_summary import entry_command, expand_command, summarize
from holdfast.resolve.program import Program
from holdfast.resolve.screen_tools import ToolWithoutHints, WithheldTool
from holdfast.resolve.server_entry import ServerEntry
from holdfast.session.session import Session
from holdfast.wire.mcp.tools import Tool

_MAX_COMPARED_LINES = 2000  # comparing more would take too long


@click.command()
@click.argument("names", nargs=-1)
@session_options
@click.option("--yes", is_flag=True, help="Approve everything that is shown, without asking.")
def approve(names: tuple[str, ...], options: SessionOptions, *, yes: bool) -> None:
    """Review and approve a project's servers, and new or changed tools.

    Shows each server of the project's .mcp.json that you have not approved, with the files of the project that it
    runs, then the tools that are new or changed since you approved them, and asks you to allow them. An approval is
    only for what was shown: after a change, the server or tool needs a new approval. With NAMES, only these servers.

    \b
    Examples:
      holdfast servers approve
      holdfast servers approve github --yes
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "Cannot ask for approval without a terminal. Review each server with `holdfast servers explain NAME`, "
            "then add --yes."
        )

    async def work(host: Host) -> None:
        decided = await _review_servers(host, options, names, yes=yes)
        async with open_session(host, options.to_open_options()) as session:
            decided += await _review_tools(host, session, names, yes=yes)
        if not decided:
            print_line("Nothing awaits approval.")

    run_with_host(work)


async def _review_servers(host: Host, options: SessionOptions, names: tuple[str, ...], *, yes: bool) -> int:
    loaded, resolution = await host.plan(options.to_open_options())
    refused = {refusal.server for refusal in resolution.refusals if refusal.stage is Stage.ADMIT}
    decided = 0
    for entry in loaded.entries:
        if entry.source is not Source.PROJECT or entry.name not in refused:
            continue
        if not names or entry.name in names:
            decided += await _review_server(host, entry, yes=yes)
    return decided


async def _review_server(host: Host, entry: ServerEntry, *, yes: bool) -> bool:
    """Show a server with its program, and ask for approval. Return False if the server is approved already."""
    words, folder = entry_command(entry), str(Path(entry.origin).parent)
    program = await host.approvals.read_program(words, folder)
    if await host.approvals.is_approved(entry, program):
        return False
    summary = summarize(entry)
    # Quoted, as the values are: a name may contain words that look like Holdfast's own.
    lines = [f"{quote(entry.name)}, from {quote(entry.origin)}"]
    lines += (f"  {line}" for line in (*describe_entry(summary), *_describe_program(program)))
    if change := await host.approvals.describe_program_change(entry, program):
        lines.append(f"  since you approved it: {change}")
    if not print_for_review(lines):
        print_line("This is longer than the screen: scroll up and read all of it. In short:")
        print_wrapped(f"  {describe_briefly(summary)}")
    if program.problem:
        print_line("  not approved: its program cannot be checked")
        return True
    if not yes and not confirm("Allow it in this project's sessions, with your rights?"):
        return True
    # The command's variables are filled in only now. If they name other files, these are part of the program too.
    complete = await host.approvals.read_program(expand_command(words, os.environ), folder)
    if complete.files != program.files:
        print_line("  with its variables filled in:")
        print_for_review(f"  {line}" for line in _describe_program(complete))
        if complete.problem or not (yes or confirm("Allow this program too?")):
            print_line("  not approved")
            return True
    await host.approvals.approve_server(entry, by=user_name(), program=complete)
    print_line("  approved")
    return True


def user_name() -> str:
    """The name of the user who approves. In a container, a user may have a number only."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


def _describe_program(program: Program) -> Iterator[str]:
    for number, path in enumerate(program.files):
        yield f"{'program:   ' if number == 0 else '           '}{quote(path)}"
    if program.problem:
        yield f"problem:   {program.problem}"
    if program.is_partial:
        yield f"           It imports more files than these {len(program.files)}. Changes to the others are not noticed."
    elif program.files:
        yield "           Only these files are checked. Changes to other files that it loads are not noticed."
    elif not program.problem:
        yield "program:   none of the project's files is checked"


async def _review_tools(host: Host, session: Session, names: tuple[str, ...], *, yes: bool) -> int:
    decided = 0
    for name, without_hints in session.offered_without_hints.items():
        if names and name not in names:
            continue
        if withheld := session.awaiting_approval.get(name, ()):
            print_wrapped(f"{quote(name)} has tools that are new or have changed since you approved them:")
            decided += await _review_definitions(host, session, name, withheld, yes=yes)
        if without_hints:
            print_wrapped(
                f"{quote(name)} says this about its tools. Until you approve this, Holdfast ignores these hints: "
                "it asks you even before tools that claim to be read-only:"
            )
            decided += await _review_definitions(host, session, name, without_hints, yes=yes)
    return decided


async def _review_definitions(
    host: Host, session: Session, server: str, tools: Sequence[WithheldTool | ToolWithoutHints], *, yes: bool
) -> int:
    spec, owner, mask = session.server(server), session.context.user_id or "", session.record.mask
    lines: list[str] = []
    for tool in tools:
        approved = await host.approvals.last_definition(spec, tool.name, owner=owner, mask=mask)
        new_lines = [*describe_tool(tool.definition)]
        old_lines = _unmask([*describe_tool(approved)], tool.definition, mask)
        lines += (f"  {quote(tool.name)}", *(f"    {line}" for line in _mark_changes(old_lines, new_lines)))
    if not print_for_review(lines):
        print_line(
            f"The definitions of these {len(tools)} tools are longer than the screen: scroll up and read all of them."
        )
    if yes or confirm("Approve them as they are shown?"):
        await host.approvals.approve_tools(
            spec,
            {tool.name: tool.fingerprint for tool in tools},
            by=user_name(),
            owner=owner,
            definitions=[tool.definition for tool in tools if tool.definition is not None],
            mask=mask,
        )
        print_line("  approved")
    return 1


def _unmask(stored: list[str], definition: Tool | None, mask: Mask) -> list[str]:
    """Return the lines of a stored definition. Lines in which secrets were masked, but nothing changed, are unmasked."""
    if definition is None:
        return stored
    masked = describe_tool(mask_definition(definition, mask))
    current = dict(zip(masked, describe_tool(definition), strict=False))
    return [current.get(line, line) for line in stored]


def _mark_changes(old_lines: list[str], new_lines: list[str]) -> Iterator[str]:
    """Return all lines; those that were added or removed begin with + or -.

    If there is no earlier definition, all lines are returned unmarked.
    """
    if not old_lines or old_lines == new_lines or len(new_lines) > _MAX_COMPARED_LINES:
        yield from new_lines
        return
    lines = difflib.unified_diff(old_lines, new_lines, lineterm="", n=_MAX_COMPARED_LINES)
    yield from islice(lines, 3, None)  # skip the header


def describe_tool(definition: Tool | None) -> Iterator[str]:
    """Return every line of a tool's definition for review: its texts, its annotations and its schemas."""
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
