"""The application in docs/serving.md serves its tools as the page says."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import host_of
from tests.connect.processes import wait_until
from tests.journeys.test_python import environment

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


async def test_application_of_the_page_serves_its_tools(tmp_path: Path):
    found = re.search(r"```python\n# app.py\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (tmp_path / "app.py").write_text(found[1])
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "error"]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **environment(tmp_path)}) as process:
        try:
            await wait_until(lambda: is_listening(port), seconds=40)
            headers = {"Authorization": "Bearer a-long-random-token", "X-Request-Id": "7"}
            server = {"url": f"http://127.0.0.1:{port}/tools/mcp", "headers": headers}
            async with host_of(shop=server) as host, host.session() as session:
                said = (await session.call("shop.whoami")).raise_for_error().data["result"]
        finally:
            process.terminate()

    assert said == "ann, request 7"
