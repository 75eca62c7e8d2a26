"""Shows a project's server to the user, and asks whether it may run: confined, with the user's rights, or not at all."""

import difflib
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from holdfast.cli.output import print_for_review, print_line, print_lines, print_wrapped
from holdfast.cli.servers.describe_entry import describe_briefly, describe_entry, quote
from holdfast.cli.servers.user_name import user_name
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.host.packages import FetchedPackage, RegistryNeededError, package_to_fetch
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.resolution import Stage
from holdfast.model.server import Source
from holdfast.resolve.entry_summary import (
    EntrySummary,
    entry_command,
    expand_command,
    mask_summary,
    summarize,
)
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.package_runner import PackageCommand
from holdfast.resolve.program import Program
from holdfast.resolve.server_entry import ServerEntry

_UNUSABLE = (Stage.LOAD, Stage.VALIDATE)
_MAX_COMPARED_LINES = 2000
_MAX_REGISTRIES = 8
_LATER = "or Enter to decide later:"
_QUESTION = f"Allow it? [c]onfined, with your [r]ights, [n]o, {_LATER}"
_CONFINED_QUESTION = f"Allow it? [c]onfined, [n]o, {_LATER}"

Ask = Callable[[str], Awaitable[str]]
"""Asks the user, and returns the answer; empty if there is none."""


class Rights(StrEnum):
    """What a project's server gets."""

    DIRECT = "direct"
    CONFINED = "confined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How the servers of a project are decided about."""

    ask: Ask | None = None
    """None if the user decided on the command line."""
    rights: Rights | None = None
    """What the user decided on the command line; None to ask."""
    readable: tuple[str, ...] = ()
    """Further paths that a confined server may read."""
    network: tuple[str, ...] = ()
    """Further hosts that a confined server may reach."""


async def review_servers(
    host: Host,
    options: OpenOptions,
    decision: Decision,
    *,
    names: Sequence[str] = (),
    again: bool = True,
) -> int:
    """Review the servers of a project that need a decision. Return how many there were.

    With `names`, only these. Unless `again`, those that the user declined before are left out.
    """
    loaded, resolution = await host.plan(options)
    answers = await host.approvals.answers()
    unusable = {refusal.server for refusal in resolution.refusals if refusal.stage in _UNUSABLE}
    decided = 0
    for entry in loaded.entries:
        is_asked_about = not names or entry.name in names
        if entry.source is not Source.PROJECT or entry.name in unusable or not is_asked_about:
            continue
        if again or entry.digest not in answers.declined:
            decided += await _Review(host, entry, decision).run()
    return decided


async def has_undecided_servers(host: Host, options: OpenOptions) -> bool:
    """Whether a project has servers that are not approved as they are now, and that the user has not declined."""
    loaded, resolution = await host.plan(options)
    refused = {refusal.server for refusal in resolution.refusals if refusal.stage is Stage.ADMIT}
    projects = [entry for entry in loaded.entries if entry.source is Source.PROJECT and entry.name in refused]
    if not projects:
        return False
    declined = (await host.approvals.answers()).declined
    return any(entry.digest not in declined for entry in projects)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The files that a server runs: those of the project, and the paths outside of it that a sandbox would show it."""

    program: Program
    outside: tuple[str, ...] = ()
    problem: str = ""
    """Why a sandbox could not start it."""
    package: FetchedPackage | None = None
    """The package that was fetched, for a server that a package runner starts."""

    def names_same_as(self, other: "_Files") -> bool:
        return (
            self.program.files == other.program.files
            and self.outside == other.outside
            and self.package == other.package
        )


class _Review:
    """The review of one server."""

    def __init__(self, host: Host, entry: ServerEntry, decision: Decision) -> None:
        self._host = host
        self._entry = entry
        self._decision = decision
        self._folder = str(Path(entry.origin).parent)
        self._summary = summarize(entry)

    async def run(self) -> bool:
        """Show the server and store the decision. Return False if nothing has to be decided."""
        words = entry_command(self._entry)
        files = await self._read_files(words)
        answers = await self._host.approvals.answers()
        granted = answers.confined.get(self._entry.digest)
        is_direct = self._entry.digest in answers.direct
        if await self._is_decided(files, granted, is_direct=is_direct):
            return False
        summary = self._with_grants(granted)
        runs = await _find_program(words, self._folder)
        # The values of variables are shown to a person at a terminal. The output of a script may end up in a log.
        environ = os.environ if self._decision.ask is not None else None
        lines = [*describe_entry(summary, environ), *_describe_files(files, runs)]
        # Quoted, as the values are: a name may contain words that look like Holdfast's own.
        shown = [f"{quote(self._entry.name)}, from {quote(self._entry.origin)}"]
        shown += (f"  {line}" for line in (*lines, *(await self._changes(summary, files, runs))))
        if not print_for_review(shown):
            print_line("This is longer than the screen: scroll up and read all of it. In short:")
            print_wrapped(f"  {describe_briefly(self._summary)}")
        if files.program.problem:
            print_line("  not approved: its program cannot be checked")
            return True
        rights = await self._choose(summary)
        if rights is None:
            return True
        complete = await self._complete(words, files, rights)
        if complete is None:
            print_line("  not approved")
            return True
        await self._store(rights, summary, complete, runs)
        return True

    async def _read_files(self, words: Sequence[str]) -> _Files:
        program = await self._host.approvals.read_program(words, self._folder)
        if not words or program.problem or package_to_fetch(words, self._folder) is not None:
            return _Files(program=program)
        try:
            return _Files(program=program, outside=await self._host.program_paths(words, self._folder))
        except HoldfastError as error:
            return _Files(program=program, problem=error.message)

    async def _is_decided(self, files: _Files, granted: ConfinedGrant | None, *, is_direct: bool) -> bool:
        decision = self._decision
        if not is_direct and granted is None:
            return False
        if decision.rights is not None and (decision.rights is Rights.DIRECT) != is_direct:
            return False
        if not await self._host.approvals.is_program_approved(self._entry, files.program):
            return False
        if granted is None:
            return True
        is_fetched = granted.package is not None or self._package_command() is None
        is_seen = is_fetched and all(_is_covered(path, granted.program_paths) for path in files.outside)
        return (
            is_seen
            and {*decision.readable} <= {*granted.readable}
            and {*decision.network} <= {*granted.network}
        )

    def _with_grants(self, granted: ConfinedGrant | None) -> EntrySummary:
        """The entry, with the further paths and hosts of an earlier grant for it and of this decision."""
        earlier = granted or ConfinedGrant()
        paths = (*self._summary.readable, *earlier.readable, *self._decision.readable)
        hosts = (*self._summary.network, *earlier.network, *self._decision.network)
        return replace(
            self._summary, readable=tuple(dict.fromkeys(paths)), network=tuple(dict.fromkeys(hosts))
        )

    async def _changes(self, summary: EntrySummary, files: _Files, runs: str) -> list[str]:
        """What changed since the server was approved last."""
        lines: list[str] = []
        if change := await self._host.approvals.describe_program_change(self._entry, files.program):
            lines.append(f"since you approved it: {change}")
        stored = await self._host.approvals.shown_entry(self._entry)
        if stored is None:
            return lines
        shown, digest = stored
        compared = [
            *difflib.unified_diff(
                shown.split("\n")[:_MAX_COMPARED_LINES],
                _masked_lines(summary, files, runs)[:_MAX_COMPARED_LINES],
                lineterm="",
                n=0,
            )
        ]
        marked = [line for line in compared[2:] if not line.startswith("@@")]
        if marked:
            lines += ("since you approved it, the entry changed:", *(f"  {line}" for line in marked))
        elif digest != self._entry.digest:
            lines.append(
                "since you approved it, a value changed that is a secret, or a key that Holdfast ignores"
            )
        return lines

    async def _choose(self, summary: EntrySummary) -> Rights | None:
        """The user's decision. None if the server is not approved; a no is stored."""
        only_confined = summary.is_confined
        if self._decision.rights is not None or self._decision.ask is None:
            rights = self._decision.rights or Rights.DIRECT
            return Rights.CONFINED if only_confined else rights
        for line in _describe_choices(summary):
            print_wrapped(f"  {line}")
        question = _CONFINED_QUESTION if only_confined else _QUESTION
        while True:
            answer = (await self._decision.ask(question)).strip().lower()
            if answer in ("c", "confined"):
                return Rights.CONFINED
            if answer in ("r", "rights") and not only_confined:
                return Rights.DIRECT
            if answer in ("n", "no"):
                await self._host.approvals.decline_server(self._entry, by=user_name())
                print_line("  declined")
                return None
            if not answer:
                print_line("  not approved")
                return None

    def _package_command(self) -> PackageCommand | None:
        """The package that the command runs, with its variables filled in."""
        return package_to_fetch(expand_command(entry_command(self._entry), os.environ), self._folder)

    async def _complete(self, words: Sequence[str], files: _Files, rights: Rights) -> _Files | None:
        """The files with the command's variables filled in, and the package fetched. None if the user does not allow them.

        Both happen only now, after the user's first answer.
        """
        filled_in = expand_command(words, os.environ)
        complete = await self._read_files(filled_in)
        command = self._package_command()
        if command is not None and rights is Rights.CONFINED:
            try:
                package = await self._fetch(command)
                outside = await self._host.program_paths(filled_in, self._folder, package)
            except HoldfastError as error:
                print_lines(f"  {error.message}")
                return None
            complete = replace(complete, package=package, outside=outside)
        if complete.names_same_as(files):
            return complete
        print_line("  what it runs, with its variables filled in:")
        print_for_review(f"  {line}" for line in _describe_files(complete, ""))
        if complete.program.problem:
            return None
        if self._decision.rights is not None or self._decision.ask is None:
            return complete
        answer = await self._decision.ask("Allow this program too? [y/N]")
        return complete if answer.strip().lower() in ("y", "yes") else None

    async def _fetch(self, command: PackageCommand) -> FetchedPackage:
        """Fetch the package, confined. Ask for each registry that it needs."""
        registries: tuple[str, ...] = ()
        print_line(f"  fetching {quote(' '.join(command.packages))}, confined, without any of your folders")
        while True:
            try:
                return await self._host.packages.fetch(
                    self._entry.origin, self._entry.name, command, registries=registries
                )
            except RegistryNeededError as error:
                hosts = [host for host in error.hosts if host not in registries]
                if self._decision.ask is None or not hosts or len(registries) > _MAX_REGISTRIES:
                    raise
                names = ", ".join(map(quote, hosts))
                answer = await self._decision.ask(f"Fetch packages for this server from {names}? [y/N]")
                if answer.strip().lower() not in ("y", "yes"):
                    raise
                registries = (*registries, *hosts)

    async def _store(self, rights: Rights, summary: EntrySummary, files: _Files, runs: str) -> None:
        own = self._summary
        grant = ConfinedGrant(
            program_paths=files.outside,
            readable=tuple(path for path in summary.readable if path not in own.readable),
            network=tuple(host for host in summary.network if host not in own.network),
            package=files.package.grant if files.package is not None else None,
        )
        await self._host.approvals.approve_server(
            self._entry,
            by=user_name(),
            program=files.program,
            grant=grant if rights is Rights.CONFINED else None,
            shown="\n".join(_masked_lines(summary, files, runs)),
        )
        print_line("  approved, confined" if rights is Rights.CONFINED else "  approved, with your rights")


def _masked_lines(summary: EntrySummary, files: _Files, runs: str) -> list[str]:
    """What a server was shown as, without secrets, to compare it with later."""
    outside = replace(files, program=Program(files={}), problem="")
    return [*describe_entry(mask_summary(summary)), *_describe_outside(outside, runs)]


def _describe_choices(summary: EntrySummary) -> Iterator[str]:
    if summary.url:
        yield "confined:     all sessions may use it, at public addresses only"
        yield "with your rights: direct sessions may use it, at any address"
        return
    hosts = ", ".join(map(quote, summary.network)) or "none"
    yield f"confined:         it sees this folder and the paths above, and may reach these hosts: {hosts}"
    if not summary.is_confined:
        yield "with your rights: it can do everything that you can"


def _describe_files(files: _Files, runs: str) -> Iterator[str]:
    yield from describe_program(files.program)
    yield from _describe_outside(files, runs)


def _describe_outside(files: _Files, runs: str) -> Iterator[str]:
    if runs:
        yield f"runs:      {runs}"
    if files.package is not None:
        grant = files.package.grant
        yield f"package:   version {quote(grant.version)}, integrity {grant.integrity[:16]}"
    for number, path in enumerate(files.outside):
        yield f"{'sees also: ' if number == 0 else '           '}{quote(path)}"
    if files.problem:
        yield f"problem:   {files.problem}"


def describe_program(program: Program) -> Iterator[str]:
    """Return the lines about the files of the project that are part of a program."""
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


async def _find_program(words: Sequence[str], folder: str) -> str:
    """The path of the program that a command starts, quoted, with the file that a link leads to; empty for a remote server."""
    if not words:
        return ""
    return await run_with_file_timeout(_locate, words[0], folder, path=folder)


def _locate(program: str, folder: str) -> str:
    named = str(Path(folder, program)) if "/" in program else program
    found = shutil.which(named) if "\0" not in program else None
    if found is None:
        return "nothing yet: there is no such program here"
    real = os.path.realpath(found)
    return quote(found) if real == found else f"{quote(found)}, which is {quote(real)}"


def _is_covered(path: str, granted: Sequence[str]) -> bool:
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in granted)
