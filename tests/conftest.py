"""Fixtures and hooks for all tests."""

import gc
import logging
import os
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.node_peers import why_skipped_here

pytest.register_assert_rewrite("holdfast.testing.store_contract")

# Limits of time would fail on a busy machine.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def keep_log_levels() -> Iterator[None]:
    """Commands and servers that run in this process set the levels of loggers; the next test sees the levels from before."""
    loggers = [logging.getLogger(), logging.getLogger("holdfast")]
    before = [(logger.level, logger.propagate, logger.disabled) for logger in loggers]
    yield
    for logger, (level, propagate, disabled) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `slow`, unless HOLDFAST_SLOW is 1."""
    if os.environ.get("HOLDFAST_SLOW") != "1":
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_collection_finish() -> None:
    """Let the garbage collector skip the million objects of the imported libraries: tests are about others."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test as skipped if it failed because the Node packages could not be installed."""
    report = yield
    if report.failed and (reason := why_skipped_here(report.longreprtext)) is not None:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a file that could not be imported for this reason."""
    report = yield
    if report.failed and (reason := why_skipped_here(report.longreprtext)) is not None:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {reason}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped, and why."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report, pytest.TestReport | pytest.CollectReport) and isinstance(report.longrepr, tuple)
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped: {count} {'test' if count == 1 else 'tests'}: {reason}")
