import json
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.commands import run_holdfast

SERVERS = Path(__file__).parents[2] / "benchmarks" / "servers"
EVERYTHING = str(Path(__file__).parents[2] / "peers/node_modules/.bin/mcp-server-everything")


def probe(*words: str) -> subprocess.CompletedProcess[str]:
    return run_holdfast("probe", *words, timeout=30)


def python(code: str) -> tuple[str, str, str, str]:
    return ("--", sys.executable, "-c", code)


def test_probe_prints_version_and_tools_as_json():
    done = probe("--json", "--", EVERYTHING)
    found = json.loads(done.stdout)

    assert (done.returncode, found["era"], found["version"], found["name"]) == (
        0,
        "handshake",
        "2025-11-25",
        "mcp-servers/everything",
    )
    assert "echo" in [tool["name"] for tool in found["tools"]]


def test_probe_prints_a_sentence_and_a_table():
    lines = probe("--", EVERYTHING).stdout.splitlines()

    assert lines[0].startswith("mcp-servers/everything 2.0.0 speaks MCP 2025-11-25 (handshake), ready in ")
    assert lines[1].split() == ["tool", "what", "it", "does"]


def test_a_server_that_cannot_be_started_is_an_error():
    done = probe("--", "no-such-server")

    reason = "there is no such program. Install it, or correct the server's command."
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: Could not start 'no-such-server': {reason}")


def test_stderr_of_a_server_that_exits_is_quoted_without_control_characters():
    done = probe(*python(r"import sys; sys.exit('no \x1b[31mkey')"))

    assert (done.returncode, done.stderr.splitlines()[1]) == (1, "  | no �[31mkey")


def test_a_line_that_a_server_prints_is_quoted():
    done = probe(*python("print('hello'); import sys; sys.exit(3)"))

    said = "Warning: a line of the server's standard output is not an MCP message. It begins with: hello\n"
    assert said in done.stderr


def test_a_silent_server_is_ended_after_the_timeout():
    done = probe("--timeout", "0.3", *python("import time; time.sleep(60)"))

    assert (done.returncode, "did not complete the MCP negotiation within 0.3 s" in done.stderr) == (1, True)


def test_probe_connects_to_a_url():
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    refused = probe(url)
    with subprocess.Popen(
        [sys.executable, SERVERS / "toolkit_echo.py", "--http", f"127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            for _ in range(200):
                with closing(socket.socket()) as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            done = probe("--json", url)
        finally:
            server.terminate()

    found = json.loads(done.stdout)
    assert (done.returncode, found["era"], [tool["name"] for tool in found["tools"]]) == (
        0,
        "modern",
        ["echo"],
    )
    assert (refused.returncode, url in refused.stderr) == (1, True)


def test_probe_of_a_source_file_says_which_command_to_type(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text("")

    done = probe(str(file.with_name("missing.py"))), probe(str(file))

    assert [one.returncode for one in done] == [1, 1]
    assert done[0].stderr.splitlines()[-1] == "Hint: Check the command and its path."
    assert done[1].stderr.splitlines()[-1].endswith(f"holdfast probe -- python {file}")
