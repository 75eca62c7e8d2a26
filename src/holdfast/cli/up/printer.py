"""What `holdfast up` prints: lines for people, or JSON lines for programs."""

import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.cli.command_name import command_name
from holdfast.cli.output import print_json, print_line, print_lines
from holdfast.cli.terminal_text import quote_lines
from holdfast.cli.up.client_configs import CLIENTS
from holdfast.model.plural import count

if TYPE_CHECKING:
    from holdfast.gateway.options import SessionSummary


class Printer(Protocol):
    """Tells the user of `holdfast up` what the gateway does."""

    def ready(
        self,
        urls: "GatewayUrls",
        servers: "ServerNames",
        *,
        without_tokens: bool,
        print_config_options: tuple[str, ...],
    ) -> None:
        """Say that clients can connect now, and how. `print_config_options` are added to the suggested commands."""
        ...

    def session(self, summary: "SessionSummary") -> None:
        """Say that a client's session was opened or has ended."""
        ...

    def stopping(self, open_sessions: int) -> None:
        """Say that the gateway closes its sessions and exits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayUrls:
    """Where clients find the gateway."""

    local: str
    public: str = ""
    """The URL of a proxy in front of the gateway; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNames:
    """The servers that a session in the gateway's folder gets, and the reasons why it does not get others."""

    folder: str
    names: tuple[str, ...]
    refused: Mapping[str, str]
    """The reason for each refused server."""


class HumanPrinter:
    """Prints lines for people."""

    def ready(
        self,
        urls: GatewayUrls,
        servers: ServerNames,
        *,
        without_tokens: bool,
        print_config_options: tuple[str, ...] = (),
    ) -> None:
        print_line(f"Holdfast is ready for MCP clients at {urls.public or urls.local}")
        if urls.public:
            print_line(f"The proxy at this URL must pass requests on to {urls.local}")
        for lines in _describe_servers(servers):
            print_lines(lines)
        if without_tokens:
            self._explain_no_tokens(urls.public or urls.local)
        else:
            print_line("To connect a client, create its token and print its configuration:")
            commands = {
                name: f"{command_name()} {shlex.join(('up', *print_config_options, '--print-config', name))}"
                for name in CLIENTS
            }
            width = max(map(len, commands.values()))
            for name, client in CLIENTS.items():
                print_line(f"  {commands[name]:<{width}}  {client.title} ({client.place})")
        print_line("Sessions that open and end are shown here. Stop with Ctrl-C.")

    def _explain_no_tokens(self, url: str) -> None:
        print_line(
            "No tokens (--no-tokens): every program and every user of this machine can use these servers with your rights,"
            " and all clients share one set of limits."
        )
        for client in CLIENTS.values():
            print_line()
            print_line(f"{client.title}: goes into {client.place}")
            for row in client.make_text(url, None).splitlines():
                print_line(f"  {row}")
        print_line()

    def session(self, summary: "SessionSummary") -> None:
        clock = time.strftime("%H:%M:%S")
        who = f"{summary.client or 'a client'} ({summary.credential.name or summary.credential.id})"
        session_id = summary.session_id or "no session"
        if summary.ended:
            print_line(f"{clock}  - {session_id}  {who}: {summary.ended}")
        else:
            servers = f", servers: {', '.join(summary.servers)}" if summary.servers else ", no servers"
            print_line(f"{clock}  + {session_id}  {who}, {summary.era.value} era{servers}")

    def stopping(self, open_sessions: int) -> None:
        if open_sessions:
            print_line(
                f"Stopping: no new sessions; waiting for running calls, then closing {count(open_sessions, 'open session')}."
            )
        else:
            print_line("Stopping.")


class JsonPrinter:
    """Prints JSON lines for programs."""

    def ready(
        self,
        urls: GatewayUrls,
        servers: ServerNames,
        *,
        without_tokens: bool,
        print_config_options: tuple[str, ...] = (),
    ) -> None:
        print_json(
            {
                "event": "ready",
                "url": urls.local,
                **({"public_url": urls.public} if urls.public else {}),
                "tokens": not without_tokens,
                "servers": servers.names,
                "refused": [*servers.refused],
            },
        )

    def session(self, summary: "SessionSummary") -> None:
        print_json(
            {
                "event": "session_ended" if summary.ended else "session_opened",
                "session_id": summary.session_id,
                "token_id": summary.credential.id,
                "token_name": summary.credential.name,
                "client": summary.client,
                "era": summary.era.value,
                "servers": summary.servers,
                **({"reason": summary.ended} if summary.ended else {}),
            },
        )

    def stopping(self, open_sessions: int) -> None:
        print_json({"event": "stopping", "open_sessions": open_sessions})


def _describe_servers(servers: ServerNames) -> Iterator[str]:
    if servers.names:
        refused = " Not used:" if servers.refused else ""
        yield f"Each session gets its own servers: {', '.join(servers.names)}.{refused}"
    elif servers.refused:
        yield (
            f"Sessions in {servers.folder} get no servers yet. A token with --workspace or --cwd gets those of its own folder. Not used:"
        )
    else:
        yield (
            f"No servers are configured yet. To add one: {command_name()} servers add NAME -- COMMAND; to import some:"
            f" {command_name()} servers import --from claude-desktop. Open sessions also get new servers."
        )
    for name, reason in servers.refused.items():
        yield f"  {name}: {quote_lines(reason)}"
