"""Questions about file tools show the change that the call would make."""

from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.event import Decision, Outcome
from holdfast.model.event_text import FileChange
from holdfast.model.meta_keys import PREVIEW_KEY
from holdfast.model.permission import Mode
from tests.connect.conftest import HostFactory, make_host
from tests.session.support import ScriptedUser

__all__ = ["make_host"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-05")]


class ReadingUser(ScriptedUser):
    """Answers each question in the same way, and keeps the questions."""

    def __init__(self, decision: Decision) -> None:
        super().__init__()
        self.decision = decision
        self.questions: list[PermissionQuestion] = []

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        self.questions.append(question)
        return self.decision

    @property
    def changes(self) -> list[FileChange | None]:
        return [question.change for question in self.questions]


@pytest.mark.parametrize(
    ("tool", "arguments", "old", "new"),
    [
        ("write", {"path": "a.txt", "text": "two\n"}, "one\n", "two\n"),
        ("write", {"path": "new/b.txt", "text": "two\n"}, None, "two\n"),
        ("edit", {"path": "a.txt", "old": "on", "new": "ag"}, "one\n", "age\n"),
    ],
    ids=["replaced file", "file in a new folder", "edited file"],
)
async def test_question_shows_the_change_and_nothing_changes_until_it_is_answered(
    make_host: HostFactory, tmp_path: Path, tool: str, arguments: dict[str, str], old: str | None, new: str
):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    before = sorted(folder.iterdir())
    user = ReadingUser(Decision.REJECT)
    async with make_host({}) as host, host.session(cwd=folder, permission=Mode.ASK) as session:
        session.attach(user)
        refused = await session.call(f"files.{tool}", arguments)
        untouched = ((folder / "a.txt").read_text(), sorted(folder.iterdir()))
        user.decision = Decision.ALLOW_ONCE
        done = await session.call(f"files.{tool}", arguments)

    path = folder / arguments["path"]
    assert user.changes == [FileChange(path=str(path), old_text=old, new_text=new)] * 2
    assert (refused.outcome, untouched) == (Outcome.REFUSED, ("one\n", before))
    assert (done.ok, path.read_text()) == (True, new)


async def test_user_is_not_asked_about_an_edit_that_would_fail(make_host: HostFactory, tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n")
    user = ReadingUser(Decision.ALLOW_ONCE)
    async with make_host({}) as host, host.session(cwd=tmp_path, permission=Mode.ASK) as session:
        session.attach(user)
        result = await session.call("files.edit", {"path": "a.txt", "old": "three", "new": "four"})

    assert (result.outcome, user.questions) == (Outcome.REFUSED, [])
    assert codes.NO_MATCH.name in result.text


async def test_caller_cannot_ask_for_a_preview(make_host: HostFactory, tmp_path: Path):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        result = await session.perform(
            ToolCall(
                call_id="c",
                server="",
                tool="files.write",
                arguments=b'{"path":"a.txt","text":"x"}',
                meta={PREVIEW_KEY: True},
            )
        )

    assert (result.ok, (tmp_path / "a.txt").read_text()) == (True, "x")


async def test_secrets_in_a_change_are_masked(make_host: HostFactory, tmp_path: Path):
    (tmp_path / "a.txt").write_text("key: s3cret-value-of-mine\n")
    entry = {"command": "true", "env": {"API_TOKEN": "s3cret-value-of-mine"}}
    user = ReadingUser(Decision.REJECT)
    async with make_host({"s": entry}) as host, host.session(cwd=tmp_path, permission=Mode.ASK) as session:
        session.attach(user)
        await session.call("files.write", {"path": "a.txt", "text": "key: none\n"})

    (change,) = user.changes
    assert change is not None
    assert change.old_text is not None
    assert "s3cret" not in change.old_text
    assert (change.old_text.startswith("key: "), change.new_text) == (True, "key: none\n")
