"""`holdfast doctor`: check the installation, and try to break out of the sandbox."""

import asyncio
import sys
from dataclasses import asdict, dataclass

import click

from holdfast.cli.doctor_checks import check_health
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.model.errors import HoldfastError
from holdfast.sandbox.escape_probe_runner import ESCAPE_PROBES, ProbeResult, run_escape_probes
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.limitations import list_limitations
from holdfast.sandbox.sandbox import SandboxBackend, make_sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxReport:
    """The test of one sandbox: whether it works, and the results of its escape probes."""

    sandbox: str
    works: bool
    reason: str
    results: tuple[ProbeResult, ...]

    @property
    def passed(self) -> bool:
        """True if the sandbox works and stopped every probe."""
        return self.works and all(result.stopped for result in self.results)


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["podman", "docker"]),
    help="Also test the container sandbox, with this engine.",
)
@click.option("--image", default="", help="The container image to test with; it must contain python3.")
@json_option
def doctor(engine: str | None, image: str, *, as_json: bool) -> None:
    """Check the installation, and try to break out of the sandbox.

    Checks the settings, the data folder, the disk, the store and its audit, the workspaces, the servers of this folder,
    and the approved servers of projects.

    Then starts a confined server that attacks as a hostile one would: it tries to read and write outside its folder, to
    reach the network and other processes, to gain privileges, to use up the machine, and to outlive its session.
    These attempts change nothing on your machine.

    Exit codes: 0 no check failed and every attempt was stopped; 1 a check failed, an attempt succeeded, or a sandbox does
    not work; 2 invalid usage.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --json
    """
    checks = check_health()
    reports = [asyncio.run(_test_sandbox(make_sandbox()))]
    if engine:
        reports.append(asyncio.run(_test_sandbox(make_sandbox(engine, image), python="python3")))
    passed = all(report.passed for report in reports) and all(check.status != "failed" for check in checks)
    if as_json:
        print_json(
            {
                "passed": passed,
                "checks": [asdict(check) for check in checks],
                "sandboxes": [asdict(report) for report in reports],
                "limitations": list_limitations(),
            }
        )
    else:
        print_table(("check", "status", "detail"), [(each.name, each.status, each.detail) for each in checks])
        _print_reports(reports)
    sys.exit(0 if passed else 1)


async def _test_sandbox(sandbox: SandboxBackend, python: str = "") -> SandboxReport:
    availability = await sandbox.check()
    if not availability.works:
        return SandboxReport(sandbox=sandbox.name, works=False, reason=availability.reason, results=())
    try:
        async with Keeper(sandbox) as keeper:
            results = await run_escape_probes(keeper, python=python)
    except HoldfastError as error:
        return SandboxReport(sandbox=sandbox.name, works=False, reason=error.message, results=())
    return SandboxReport(sandbox=sandbox.name, works=True, reason="", results=results)


def _print_reports(reports: list[SandboxReport]) -> None:
    rows = [
        (report.sandbox, ESCAPE_PROBES[result.probe], result.achieved or "stopped")
        for report in reports
        for result in report.results
    ]
    if rows:
        print_table(("sandbox", "a confined server tries to", "result"), rows)
    for report in reports:
        print_line(f"{report.sandbox}: {_verdict(report)}")
    for limitation in list_limitations():
        print_line(f"Note: {limitation}")


def _verdict(report: SandboxReport) -> str:
    if not report.works:
        return f"does not work, so confined servers are refused. {report.reason}"
    succeeded = sum(not result.stopped for result in report.results)
    if succeeded:
        return f"{succeeded} of {len(report.results)} attempts succeeded. Do not run untrusted servers on this machine."
    return f"all {len(report.results)} attempts were stopped."
