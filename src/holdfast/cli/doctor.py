"""`holdfast doctor`: try to break out of the sandbox, for real, and tell what held."""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass

import click

from holdfast.cli import table
from holdfast.model.errors import HoldfastError
from holdfast.sandbox.keeper import Keeper
from holdfast.sandbox.lacks import lacks
from holdfast.sandbox.probes import ATTEMPTS, Outcome, probe
from holdfast.sandbox.sandbox import Sandbox, configured


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sandbox: whether it works, and how it fared."""

    sandbox: str
    works: bool
    reason: str
    outcomes: tuple[Outcome, ...]

    @property
    def held(self) -> bool:
        """Whether every attempt was stopped."""
        return self.works and all(outcome.held for outcome in self.outcomes)


@click.command()
@click.option("--engine", type=click.Choice(["podman", "docker"]), help="Try containers of this engine too.")
@click.option("--image", default="", help="The image for them; it must have python3.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def doctor(engine: str | None, image: str, *, as_json: bool) -> None:
    """Try to break out of the sandbox, and tell what held.

    Starts a confined server that attempts what a hostile one would: to read and write outside its folder, to reach
    the network and other processes, to gain rights, to use up the machine, to outlive its session. Nothing is harmed.
    Exits with 0 when everything held, with 1 when something did not or no sandbox works.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --json
    """
    findings = [asyncio.run(_examined(configured()))]
    if engine:
        findings.append(asyncio.run(_examined(configured(engine, image), python="python3")))
    held = all(finding.held for finding in findings)
    if as_json:
        click.echo(
            json.dumps({"held": held, "sandboxes": [asdict(f) for f in findings], "lacks": lacks()}, indent=2)
        )
    else:
        _for_people(findings)
    sys.exit(0 if held else 1)


async def _examined(sandbox: Sandbox, python: str = "") -> Finding:
    found = await sandbox.check()
    if not found.works:
        return Finding(sandbox=sandbox.name, works=False, reason=found.reason, outcomes=())
    try:
        async with Keeper(sandbox) as keeper:
            outcomes = await probe(keeper, python=python)
    except HoldfastError as error:
        return Finding(sandbox=sandbox.name, works=False, reason=error.message, outcomes=())
    return Finding(sandbox=sandbox.name, works=True, reason="", outcomes=outcomes)


def _for_people(findings: list[Finding]) -> None:
    rows = [
        (finding.sandbox, ATTEMPTS[outcome.attempt], outcome.achieved or "held")
        for finding in findings
        for outcome in finding.outcomes
    ]
    if rows:
        table.show(("sandbox", "a confined server tries to", "result"), rows)
    for finding in findings:
        click.echo(f"{finding.sandbox}: {_verdict(finding)}")
    for sentence in lacks():
        click.echo(f"Note: {sentence}")


def _verdict(finding: Finding) -> str:
    if not finding.works:
        return f"does not work, so confined servers are refused. {table.plain(finding.reason)}"
    broken = sum(not outcome.held for outcome in finding.outcomes)
    if broken:
        return (
            f"{broken} of {len(finding.outcomes)} attempts succeeded. Do not run what you do not trust here."
        )
    return f"all {len(finding.outcomes)} attempts were stopped."
