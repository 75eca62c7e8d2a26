"""The examples in docs/plain-servers.md read the context that Holdfast sets."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.context import CONTEXT_HEADER, CONTEXT_VARIABLES, META_KEY, SessionContext, context_env
from holdfast.model.ids import parse_session_id
from holdfast.model.trust import Trust

PAGE = (Path(__file__).parents[2] / "docs" / "plain-servers.md").read_text(encoding="utf-8")
INTERPRETERS = {
    "python": [sys.executable, "-c"],
    "typescript": [shutil.which("node") or "node", "-e"],
    "sh": ["sh", "-c"],
}


def test_page_names_every_variable_the_key_and_the_header():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == CONTEXT_VARIABLES
    assert f"`{META_KEY}`" in PAGE
    assert f"`{CONTEXT_HEADER}`" in PAGE


@pytest.mark.promise("CTX-01")
@pytest.mark.parametrize("language", INTERPRETERS)
def test_example_prints_the_session(language: str):
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    session_id = parse_session_id("sess_" + "0" * 32)
    variables = [
        context_env(SessionContext(session_id=session_id, trust_level=Trust.DIRECT, workspace_id="blog")),
        context_env(SessionContext(session_id=session_id, trust_level=Trust.SANDBOXED)),
        {},
    ]

    assert [run(language, code, each) for each in variables] == [
        f"{session_id} in blog, direct: {'True' if language == 'python' else 'true'}",
        f"{session_id} in no workspace, direct: {'False' if language == 'python' else 'false'}",
        "no session: nothing is known about the caller",
    ]


def run(language: str, code: str, variables: dict[str, str]) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [*INTERPRETERS[language], code],
        env={**plain, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
