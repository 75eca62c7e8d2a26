"""`holdfast tools`: the tools a session here would have."""

import json

import click

from holdfast.cli import table
from holdfast.cli.opening import Where, opened, session_options, with_host
from holdfast.connect.catalog import Offer
from holdfast.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Refusal


@click.command()
@click.argument("server", required=False)
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def tools(server: str | None, where: Where, *, as_json: bool) -> None:
    """List the tools that a session here would have.

    Starts the servers, asks each for its tools, and ends them again. With SERVER, only that one.
    """
    asked = where.opening(only=server)

    async def work(host: Host) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
        async with opened(host, asked) as session:
            return await session.tools(), session.refusals

    offers, refusals = with_host(work)
    if server is not None:
        refusals = tuple(refusal for refusal in refusals if refusal.server == server)
        if not offers and not refusals:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"There is no server {server!r} here.")
    if as_json:
        click.echo(json.dumps(_for_programs(offers, refusals), indent=2))
        return
    if offers:
        rows = [
            (offer.name, (offer.tool.description or offer.tool.title or "").partition("\n")[0])
            for offer in offers
        ]
        table.show(("tool", "what it does"), rows)
    for refusal in refusals:
        click.echo(f"{table.plain(refusal.server)}: {table.lines(refusal.reason)}", err=True)
    if not offers and not refusals:
        click.echo(
            "There are no servers here yet. Try: holdfast servers import --from claude-desktop", err=True
        )


def _for_programs(offers: tuple[Offer, ...], refusals: tuple[Refusal, ...]) -> dict[str, object]:
    return {
        "tools": [
            {
                "name": offer.name,
                "model_name": offer.model_name,
                "server": offer.server.name,
                "description": offer.tool.description or "",
                "input_schema": json.loads(bytes(offer.tool.input_schema)),
            }
            for offer in offers
        ],
        "refusals": [
            {"server": refusal.server, "stage": refusal.stage, "reason": refusal.reason}
            for refusal in refusals
        ],
    }
