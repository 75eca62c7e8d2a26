"""Shows the servers of a project to the user, and asks about each: run it confined, with the user's rights, or not at all."""

import difflib
import os
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from pathlib import Path

from holdfast.cli.output import print_for_review, print_line, print_lines, print_while_waiting, print_wrapped
from holdfast.cli.servers.describe_entry import describe_briefly, describe_entry
from holdfast.cli.user_name import user_name
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.host.packages import FetchedPackage, RegistryNeededError, package_to_fetch
from holdfast.masking.likely_secrets import mask_listing
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.resolution import Stage
from holdfast.model.search_path import absolute_search_path
from holdfast.model.server import PackageGrant, Source
from holdfast.model.visible_text import quote
from holdfast.resolve.approval_store import ServerApproval
from holdfast.resolve.approved_variables import module_folders
from holdfast.resolve.entry_summary import (
    EntrySummary,
    entry_command,
    expand_command,
    mask_secrets,
    summarize,
)
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.package_runner import PackageCommand
from holdfast.resolve.program import Program
from holdfast.resolve.protected_paths import paths_hidden_from_sandboxes
from holdfast.resolve.server_entry import ServerEntry
from holdfast.sandbox.protected_folders import why_not_mounted

_INVALID_ENTRY_STAGES = (Stage.LOAD, Stage.VALIDATE)
_MAX_COMPARED_LINES = 2000  # the time to compare grows with the square of the number of lines
_MAX_REGISTRIES = 8  # if the user allows more for one package, it is not fetched
_LATER = "or Enter to decide later:"
_QUESTION = f"Allow it? [c]onfined, with your [r]ights, [n]o, {_LATER}"
_CONFINED_QUESTION = f"Allow it? [c]onfined, [n]o, {_LATER}"

Ask = Callable[[str], Awaitable[str]]
"""Asks the user a question, and returns the answer; empty if there is none."""


class Rights(StrEnum):
    """How a project's server may run: with the rights of the user, or confined in a sandbox."""

    DIRECT = "direct"
    CONFINED = "confined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewOptions:
    """How to decide about the servers of a project: the user is asked, or options of the command line decide."""

    ask: Ask | None = None
    """Asks the user. None without a terminal, and with --yes."""
    session_arguments: tuple[str, ...] = ()
    """The given options of the session, such as `("--cwd", "/tmp")`, to be added to the commands in messages."""
    rights: Rights | None = None
    """The rights that the user chose on the command line; None to ask, or to keep those of the last approval."""
    yes: bool = False
    """Whether to approve what is shown. If this is False and `ask` and `rights` are None, nothing is approved."""
    default_rights: Rights | None = None
    """With `yes`: the rights of a server that was never approved. None: such a server is not approved."""
    follow_edits: bool = False
    """Whether later edits of a program with the user's rights are also approved."""
    readable: tuple[str, ...] = ()
    """Paths that a confined server may read besides those in its entry."""
    network: tuple[str, ...] = ()
    """Hosts that a confined server may reach besides those in its entry."""
    writable: tuple[str, ...] = ()
    """Names in the project's folder, such as `.git`, that a confined server may change although they are usually read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCounts:
    """How many items were shown for a decision, and how many still await it. An item is a server, or the tools of a server."""

    shown: int = 0
    undecided: int = 0

    def __add__(self, other: "ReviewCounts") -> "ReviewCounts":
        return ReviewCounts(shown=self.shown + other.shown, undecided=self.undecided + other.undecided)


async def review_servers(
    host: Host,
    open_options: OpenOptions,
    review_options: ReviewOptions,
    *,
    names: Sequence[str] = (),
    include_declined: bool = True,
) -> ReviewCounts:
    """Review the servers of a project that need a decision.

    With `names`, review only these servers. Without `include_declined`, leave out servers that the user has declined.
    """
    loaded, resolution = await host.plan(open_options)
    answers = await host.approvals.answers()
    unusable = {
        refusal.server: refusal.reason
        for refusal in resolution.refusals
        if refusal.stage in _INVALID_ENTRY_STAGES
    }
    reviewed = ReviewCounts()
    for entry in loaded.entries:
        if entry.source is not Source.PROJECT or (names and entry.name not in names):
            continue
        if reason := unusable.get(entry.name):
            print_wrapped(f"{quote(entry.name)} cannot be used: {mask_listing(reason)}")
            reviewed += ReviewCounts(shown=1, undecided=1)
        elif include_declined or entry.digest not in answers.declined:
            outcome = await _Review(host, entry, review_options).run()
            if outcome is not _Outcome.NOTHING_TO_DECIDE:
                reviewed += ReviewCounts(shown=1, undecided=int(outcome is _Outcome.UNDECIDED))
    return reviewed


async def describe_as_in_review(host: Host, entry: ServerEntry) -> list[str]:
    """The lines that a review shows about a project's server: its entry, what was granted to it, and the files that it runs."""
    return await _Review(host, entry, ReviewOptions()).describe()


async def has_undecided_servers(host: Host, options: OpenOptions) -> bool:
    """Whether a project has servers that are not approved as they are now, and that the user has not declined."""
    loaded, resolution = await host.plan(options)
    refused = {refusal.server for refusal in resolution.refusals if refusal.stage is Stage.ADMIT}
    projects = [entry for entry in loaded.entries if entry.source is Source.PROJECT and entry.name in refused]
    if not projects:
        return False
    declined = (await host.approvals.answers()).declined
    for entry in projects:
        # A server may also be refused for another reason, such as a name that is taken.
        if entry.digest not in declined and await _Review(host, entry, ReviewOptions()).needs_decision():
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgramFiles:
    """The files that a server runs."""

    program: Program
    """The files of the project."""
    outside: tuple[str, ...] = ()
    """The paths outside of the project that the server's sandbox shows."""
    problem: str = ""
    """Why the server cannot start in a sandbox; empty if it can."""
    package: FetchedPackage | None = None
    """The package that was fetched, for a server that a package runner starts."""

    def is_same_program(self, other: "_ProgramFiles") -> bool:
        """Whether the same files run. A `problem` does not count."""
        return (
            self.program.files == other.program.files
            and self.outside == other.outside
            and self.package == other.package
        )


class _Outcome(Enum):
    """How the review of one server ended. A server that was declined also counts as decided."""

    NOTHING_TO_DECIDE = auto()
    DECIDED = auto()
    UNDECIDED = auto()


class _Review:
    """The review of one server."""

    def __init__(self, host: Host, entry: ServerEntry, options: ReviewOptions) -> None:
        self._host = host
        self._entry = entry
        self._options = options
        self._folder = str(Path(entry.origin).parent)
        self._summary = summarize(entry)

    async def needs_decision(self) -> bool:
        """Whether the server is not approved as it is now."""
        files = await self._read_files(entry_command(self._entry))
        return not await self._is_decided(files)

    async def run(self) -> _Outcome:
        """Unless the server is approved as it is, show it, let the user choose its rights, and store the decision."""
        argv = entry_command(self._entry)
        files = await self._read_files(argv)
        if await self._is_decided(files):
            return _Outcome.NOTHING_TO_DECIDE
        last = await self._host.approvals.last_answer(self._entry)
        summary = self._with_grants(last.grant if last is not None else None)
        program_path = await _find_program(argv, self._folder)
        await self._show(summary, files, program_path)
        if _why_not_approvable(files.program):
            print_line("  not approved: its program cannot be checked")
            return _Outcome.UNDECIDED
        rights = await self._choose(summary, last)
        if not isinstance(rights, Rights):
            return rights
        final_files = None
        if why := await self._why_not_mountable(summary) if rights is Rights.CONFINED else "":
            print_lines(f"  {why}")
        else:
            final_files = await self._fill_in_and_fetch(argv, files, rights)
        if final_files is None:
            print_line("  not approved")
            return _Outcome.UNDECIDED
        await self._store(rights, summary, final_files, program_path)
        return _Outcome.DECIDED

    async def _show(self, summary: EntrySummary, files: _ProgramFiles, program_path: str) -> None:
        # The values of variables are shown only at a terminal. The output of a script may end up in a log.
        environ = os.environ if self._options.ask is not None else None
        lines = [*describe_entry(summary, environ), *_describe_files(files, program_path)]
        # Quoted like the values, because a name may contain words that look like those of Holdfast.
        shown = [f"{quote(self._entry.name)}, from {quote(self._entry.origin)}"]
        shown += (f"  {line}" for line in (*lines, *(await self._changes(summary, files, program_path))))
        if not print_for_review(shown):
            print_line("In short:")
            print_wrapped(f"  {describe_briefly(self._summary)}")

    async def describe(self) -> list[str]:
        """The lines about the server, as `describe_as_in_review` returns them."""
        argv = entry_command(self._entry)
        last = await self._host.approvals.last_answer(self._entry)
        lines = describe_entry(self._with_grants(last.grant if last is not None else None))
        try:
            files = await self._read_files(argv)
            granted = (await self._host.approvals.answers()).confined.get(self._entry.digest)
            shown = [*lines, *_describe_files(files, await _find_program(argv, self._folder))]
            if granted is not None and granted.package is not None:
                shown += _describe_package(granted.package, granted.program_paths)
            return shown
        except HoldfastError as error:
            return [*lines, f"problem:   {error.message}"]

    async def _why_not_mountable(self, summary: EntrySummary) -> str:
        """Why the sandbox would refuse to mount one of the paths that the server may read; empty if it would not."""
        paths = expand_command(summary.readable, os.environ)
        hidden = paths_hidden_from_sandboxes(self._host.settings)
        return await run_with_file_timeout(why_not_mounted, paths, hidden, path=self._folder)

    async def _read_files(self, argv: Sequence[str]) -> _ProgramFiles:
        """The files that this command runs, without those of a package that has to be fetched."""
        folders = module_folders(self._summary.env)
        program = await self._host.approvals.read_program(argv, self._folder, folders)
        if not argv or program.problem or await self._package_to_fetch(argv) is not None:
            return _ProgramFiles(program=program)
        try:
            return _ProgramFiles(program=program, outside=await self._host.program_paths(argv, self._folder))
        except HoldfastError as error:
            return _ProgramFiles(program=program, problem=error.message)

    async def _is_decided(self, files: _ProgramFiles) -> bool:
        """Whether the server is approved as it is now, and nothing on the command line asks for another approval."""
        options = self._options
        answers = await self._host.approvals.answers()
        granted = answers.confined.get(self._entry.digest)
        is_direct = self._entry.digest in answers.direct
        if not is_direct and granted is None:
            return False
        if options.rights is not None and (options.rights is Rights.DIRECT) != is_direct:
            return False
        if (
            options.follow_edits
            and self._entry.digest not in await self._host.approvals.entries_with_followed_edits()
        ):
            return False
        if not await self._host.approvals.is_program_approved(self._entry, files.program):
            return False
        if granted is None:
            return True
        filled_in = expand_command(entry_command(self._entry), os.environ)
        is_fetched = granted.package is not None or await self._package_to_fetch(filled_in) is None
        return (
            is_fetched
            and all(_is_covered(path, granted.program_paths) for path in files.outside)
            and {*options.readable} <= {*granted.readable}
            and {*options.network} <= {*granted.network}
            and {*options.writable} <= {*granted.writable}
        )

    def _with_grants(self, granted: ConfinedGrant | None) -> EntrySummary:
        """The entry's summary, with the paths and hosts of an earlier grant and of the command line."""
        earlier = granted or ConfinedGrant()
        paths = (*self._summary.readable, *earlier.readable, *self._options.readable)
        hosts = (*self._summary.network, *earlier.network, *self._options.network)
        writable = (*earlier.writable, *self._options.writable)
        return replace(
            self._summary,
            readable=tuple(dict.fromkeys(paths)),
            network=tuple(dict.fromkeys(hosts)),
            writable=tuple(dict.fromkeys(writable)),
        )

    async def _changes(self, summary: EntrySummary, files: _ProgramFiles, program_path: str) -> list[str]:
        """The lines that say what changed since the last approval of the server."""
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
                _masked_lines(summary, files, program_path)[:_MAX_COMPARED_LINES],
                lineterm="",
                n=0,
            )
        ]
        marked = [line for line in compared[2:] if not line.startswith("@@")]  # skip the headers
        if marked:
            lines += ("since you approved it, the entry changed:", *(f"  {line}" for line in marked))
        elif digest != self._entry.digest:
            lines.append(
                "since you approved it, a value changed that is a secret, or a key that Holdfast ignores"
            )
        return lines

    async def _choose(self, summary: EntrySummary, last: ServerApproval | None) -> Rights | _Outcome:
        """Ask the user, unless the command line decides, and store a no. Returns the rights, or how the review ended without them."""
        only_confined = summary.is_confined
        if self._options.ask is None and self._options.rights is None and not self._options.yes:
            earlier = Rights.CONFINED if only_confined else self._earlier_rights(last)
            command = ["holdfast", "servers", "approve", *self._options.session_arguments, self._entry.name]
            command.append(f"--{earlier or Rights.CONFINED}")
            print_wrapped(
                "  not approved: without a terminal, Holdfast cannot ask you. To approve it "
                f"{'with your rights' if earlier is Rights.DIRECT else 'as confined'}, run: {shlex.join(command)}"
            )
            return _Outcome.UNDECIDED
        if self._options.rights is not None or self._options.ask is None:
            rights = Rights.CONFINED if only_confined else self._options.rights or self._earlier_rights(last)
            if rights is None:
                print_wrapped(
                    "  not approved: say how it may run. Add --confined to run it in a sandbox, or --direct"
                    " to run it with your rights."
                )
                return _Outcome.UNDECIDED
            return rights
        for line in _describe_choices(summary):
            print_wrapped(f"  {line}")
        question = _CONFINED_QUESTION if only_confined else _QUESTION
        while True:
            answer = (await self._options.ask(question)).strip().lower()
            if answer in ("c", "confined"):
                return Rights.CONFINED
            if answer in ("r", "rights") and not only_confined:
                return Rights.DIRECT
            if answer in ("n", "no"):
                await self._host.approvals.decline_server(self._entry, by=user_name())
                print_line("  declined")
                return _Outcome.DECIDED
            if not answer:
                print_line("  not approved")
                return _Outcome.UNDECIDED
            print_line(f"  Type {'c' if only_confined else 'c, r'} or n, or press Enter to decide later.")

    def _earlier_rights(self, last: ServerApproval | None) -> Rights | None:
        """The rights of the last approval of a server with this name, so that --yes never changes them; else the default."""
        if last is None:
            return self._options.default_rights
        return Rights.DIRECT if last.grant is None else Rights.CONFINED

    async def _package_to_fetch(self, argv: Sequence[str]) -> PackageCommand | None:
        return await run_with_file_timeout(package_to_fetch, argv, self._folder, path=self._folder)

    async def _fill_in_and_fetch(
        self, argv: Sequence[str], files: _ProgramFiles, rights: Rights
    ) -> _ProgramFiles | None:
        """Fill in the variables of the command, and fetch its package. If other files would run, ask the user about them too.

        Returns None if the package cannot be fetched, or the files are not allowed.
        """
        filled_in = expand_command(argv, os.environ)
        final_files = await self._read_files(filled_in)
        command = await self._package_to_fetch(filled_in)
        if command is not None and rights is Rights.CONFINED:
            try:
                package = await self._fetch(command)
                outside = await self._host.program_paths(filled_in, self._folder, package)
            except HoldfastError as error:
                print_lines(f"  {error.message}")
                return None
            final_files = replace(final_files, package=package, outside=outside)
        if final_files.is_same_program(files):
            return final_files
        print_line("  what it runs, with its variables filled in:")
        print_for_review(f"  {line}" for line in _describe_files(final_files, ""))
        if _why_not_approvable(final_files.program):
            return None
        if self._options.rights is not None or self._options.ask is None:
            return final_files
        answer = await self._options.ask("Allow this program too? [y/N]")
        return final_files if answer.strip().lower() in ("y", "yes") else None

    async def _fetch(self, command: PackageCommand) -> FetchedPackage:
        """Fetch the package, confined. Ask for each registry that it needs."""
        registries: tuple[str, ...] = ()
        print_line(f"  fetching {quote(' '.join(command.packages))}, confined, without any of your folders")
        while True:
            try:
                fetching = self._host.packages.fetch(
                    self._entry.origin, self._entry.name, command, registries=registries
                )
                return await print_while_waiting("still fetching", fetching)
            except RegistryNeededError as error:
                hosts = [host for host in error.hosts if host not in registries]
                if self._options.ask is None or not hosts or len(registries) > _MAX_REGISTRIES:
                    raise
                names = ", ".join(map(quote, hosts))
                answer = await self._options.ask(f"Fetch packages for this server from {names}? [y/N]")
                if answer.strip().lower() not in ("y", "yes"):
                    raise
                registries = (*registries, *hosts)

    async def _store(
        self, rights: Rights, summary: EntrySummary, files: _ProgramFiles, program_path: str
    ) -> None:
        own = self._summary
        grant = ConfinedGrant(
            program_paths=files.outside,
            readable=tuple(path for path in summary.readable if path not in own.readable),
            network=tuple(host for host in summary.network if host not in own.network),
            writable=summary.writable,
            package=files.package.grant if files.package is not None else None,
        )
        await self._host.approvals.approve_server(
            self._entry,
            by=user_name(),
            program=files.program,
            grant=grant if rights is Rights.CONFINED else None,
            follow_edits=self._options.follow_edits,
            shown="\n".join(_masked_lines(summary, files, program_path)),
        )
        followed = ", including later edits" if self._options.follow_edits else ""
        print_line(
            "  approved, confined" if rights is Rights.CONFINED else f"  approved, with your rights{followed}"
        )


def _masked_lines(summary: EntrySummary, files: _ProgramFiles, program_path: str) -> list[str]:
    """The description of a server, with secrets masked. It is stored, and compared with the description at the next review."""
    without_problem = replace(files, problem="")  # a problem may come and go while the entry stays the same
    return [*describe_entry(mask_secrets(summary)), *_describe_outside(without_problem, program_path)]


def _describe_choices(summary: EntrySummary) -> Iterator[str]:
    if summary.url:
        yield "confined:         all sessions may use it, at public addresses only"
        yield "with your rights: direct sessions may use it, at any address"
        return
    hosts = ", ".join(map(quote, summary.network)) or "none"
    yield f"confined:         it sees this folder and the paths above, and may reach these hosts: {hosts}"
    if not summary.is_confined:
        yield "with your rights: it can do everything that you can"


def _describe_files(files: _ProgramFiles, program_path: str) -> Iterator[str]:
    yield from describe_program(files.program)
    yield from _describe_outside(files, program_path)


def _describe_outside(files: _ProgramFiles, program_path: str) -> Iterator[str]:
    if program_path:
        yield f"runs:      {program_path}"
    if files.package is not None:
        yield from _describe_package(files.package.grant, files.outside)
    else:
        yield from _describe_paths(files.outside)
    if files.problem:
        yield f"problem:   {files.problem}"


def _describe_package(grant: PackageGrant, outside: Sequence[str]) -> Iterator[str]:
    yield f"package:   version {quote(grant.version)}, integrity {grant.integrity[:16]}"
    yield from _describe_paths(outside)
    if outside:
        yield "           These are the python3 and node of your PATH, and Holdfast's own Python: a package may start each of them."


def _describe_paths(outside: Sequence[str]) -> Iterator[str]:
    for number, path in enumerate(outside):
        yield f"{'also sees: ' if number == 0 else '           '}{quote(path)}"


def _why_not_approvable(program: Program) -> str:
    return program.problem or program.problem_with_bytecode


def describe_program(program: Program) -> Iterator[str]:
    """The lines about the files of the project that are part of a program."""
    for number, path in enumerate(program.files):
        yield f"{'program:   ' if number == 0 else '           '}{quote(path)}"
    if problem := _why_not_approvable(program):
        yield f"problem:   {problem}"
    if program.package_sources:
        hosts = ", ".join(map(quote, program.package_sources))
        yield f"fetches:   packages from {hosts}, as the project's settings say"
    if program.is_partial:
        yield f"           It may run more files than these {len(program.files)}. Changes to the others are not noticed."
    elif program.files:
        yield "           Only these files are checked. Changes to other files that it loads are not noticed."
    elif not problem:
        yield "program:   none of the project's files is checked"


async def _find_program(argv: Sequence[str], folder: str) -> str:
    """The quoted path of the program that a command starts, and the target of a link; empty for a remote server."""
    if not argv:
        return ""
    return await run_with_file_timeout(_locate, argv[0], folder, path=folder)


def _locate(program: str, folder: str) -> str:
    """Describe where a program is found. A relative path is relative to `folder`."""
    named = str(Path(folder, program)) if "/" in program else program
    search_path = absolute_search_path(os.environ.get("PATH", ""))
    found = shutil.which(named, path=search_path) if "\0" not in program else None
    if found is None:
        return "nothing yet: there is no such program here"
    real = os.path.realpath(found)
    return quote(found) if real == found else f"{quote(found)}, which is {quote(real)}"


def _is_covered(path: str, granted: Sequence[str]) -> bool:
    """Whether the path is one of the granted paths, or in one of them."""
    return any(path == other or path.startswith(f"{other.rstrip('/')}/") for other in granted)
