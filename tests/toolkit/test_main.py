"""The command line of a toolbox."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.toolkit.serve import HttpOptions, find_allowed_hosts
from tests.toolkit.server_process import ROOT


def printed_after_start(
    *arguments: str, log_format: str = "human", then: Callable[[list[str]], None] = lambda lines: None
) -> list[str]:
    """The lines on standard error until the server was told to end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.toolkit.notes_server", "--http", "127.0.0.1:0", *arguments],
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_LOG_FORMAT": log_format},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    with process:
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line.rstrip())
            if "Ctrl-C" in line or (log_format == "json" and "listening" in line):
                then(lines)
                process.terminate()
    return lines


def test_http_server_prints_how_to_connect():
    lines = printed_after_start()

    (url,) = re.findall(r"^notes: connect to (http://127\.0\.0\.1:\d+/mcp)$", "\n".join(lines), re.MULTILINE)
    (entry,) = (json.loads(line.split(None, 1)[1]) for line in lines if line.strip().startswith("mcp.json"))
    assert entry == {"mcpServers": {"notes": {"type": "http", "url": url}}}
    assert any(line.endswith(f"claude mcp add --transport http notes {url}") for line in lines)


@pytest.mark.parametrize(
    "options",
    [["--keys", "k.json"], ["--public", "https://x.example"], ["--allow-anonymous"], ["--allow-host", "x"]],
)
def test_option_of_http_is_not_ignored_on_stdio(options: list[str]):
    command = [sys.executable, "-m", "tests.toolkit.notes_server", *options]
    run = subprocess.run(
        command, check=False, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert f"error: {options[0]} can only be used over HTTP: add --http HOST:PORT." in run.stderr


def test_http_server_on_an_ipv6_address_answers_requests_to_that_address():
    hosts = find_allowed_hosts(HttpOptions(host="FD00::1", port=8080))

    hosts.check({"host": "[fd00::1]:8080"})
    with pytest.raises(HoldfastError, match="'\\[fd00::2\\]:8080' is not a host name of this server"):
        hosts.check({"host": "[fd00::2]:8080"})


def test_origin_of_the_command_line_is_compared_as_browsers_send_it():
    hosts = find_allowed_hosts(HttpOptions(host="127.0.0.1", port=1, origins=("https://Shop.example",)))

    hosts.check({"host": "127.0.0.1:1", "origin": "https://shop.example"})


@pytest.mark.parametrize(
    "options",
    [
        HttpOptions(host="127.0.0.1", port=1, hosts=("https://shop.example",)),
        HttpOptions(host="127.0.0.1", port=1, hosts=("shop.example:8080",)),
        HttpOptions(host="127.0.0.1", port=1, origins=("shop.example",)),
    ],
)
def test_host_or_origin_that_no_request_has_is_refused(options: HttpOptions):
    with pytest.raises(
        HoldfastError, match=r"--allow-(host|origin)` contains .*Write (host names|origins) such as"
    ):
        find_allowed_hosts(options)


def test_http_server_answers_health_checks():
    health: list[bytes] = []

    def check(lines: list[str]) -> None:
        (port,) = re.findall(
            r"^notes: connect to http://127\.0\.0\.1:(\d+)/mcp$", "\n".join(lines), re.MULTILINE
        )
        connection = HTTPConnection("127.0.0.1", int(port))
        with closing(connection):
            connection.request("GET", "/healthz")
            health.append(connection.getresponse().read())

    printed_after_start(then=check)

    assert health == [b'{"ok": true}']


def test_http_server_prints_only_json_if_the_log_is_for_programs():
    lines = printed_after_start(log_format="json")

    assert [json.loads(line)["event"] for line in lines if "listening" in line] == ["listening"]
    assert all(line.startswith("{") for line in lines)
