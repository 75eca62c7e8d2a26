import re
import time
from pathlib import Path

import pytest

from holdfast.gateway.client_tokens import Tokens
from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.model.trust import Trust

LIMITED = Credential(
    id="",
    name="cursor",
    cwd="/srv/blog",
    workspace="blog",
    trust=Trust.SANDBOXED,
    mode=Mode.READ_ONLY,
    servers=frozenset({"git", "files"}),
    tools=(parse_tool_pattern("git.log"), parse_tool_pattern("files.*")),
    user_id="ann",
    expires_at=4e9,
)


def refusal(tokens: Tokens, token: str) -> str:
    with pytest.raises(NotAuthenticatedError) as refused:
        tokens.authenticate(token)
    secret = token.split("_", 2)[-1]
    assert not secret or secret not in f"{refused.value.message} {refused.value.reason}"
    return refused.value.reason


@pytest.mark.promise("GW-06")
def test_a_token_has_the_limits_that_it_was_created_with(tmp_path: Path):
    token, stored = Tokens(tmp_path / "tokens").create(LIMITED)

    found = Tokens(tmp_path / "tokens").authenticate(token)  # as another process

    assert (found.id, found.name, found.cwd, found.workspace) == (stored.id, "cursor", "/srv/blog", "blog")
    assert (found.trust, found.mode, found.servers) == (Trust.SANDBOXED, Mode.READ_ONLY, LIMITED.servers)
    assert (found.tools, found.user_id, found.expires_at) == (LIMITED.tools, "ann", 4e9)


@pytest.mark.promise("GW-06")
def test_the_files_contain_no_token_and_only_their_owner_can_open_them(tmp_path: Path):
    folder = tmp_path / "tokens"
    token, _ = Tokens(folder).create(LIMITED)

    (file,) = folder.iterdir()

    secret = token.split("_", 2)[2]
    assert secret.encode() not in file.read_bytes()
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.promise("GW-06")
def test_a_revocation_by_another_process_counts_at_the_next_use(tmp_path: Path):
    running, other = Tokens(tmp_path / "tokens"), Tokens(tmp_path / "tokens")
    token, stored = other.create(LIMITED)
    accepted = running.authenticate(token)

    other.revoke("cursor")

    assert accepted.id == stored.id
    assert (refusal(running, token), running.why_invalid(stored.id)) == (
        "revoked token",
        "the token was revoked",
    )


@pytest.mark.promise("GW-06")
def test_a_token_is_refused_from_the_moment_that_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tokens = Tokens(tmp_path / "tokens")
    token, stored = tokens.create(Credential(id="", name="short", expires_at=1000.0))

    monkeypatch.setattr(time, "time", lambda: 999.9)
    assert tokens.authenticate(token).id == stored.id
    monkeypatch.setattr(time, "time", lambda: 1000.0)

    assert (refusal(tokens, token), tokens.why_invalid(stored.id)) == (
        "expired token",
        "the token has expired",
    )


def test_other_tokens_are_refused(tmp_path: Path):
    tokens = Tokens(tmp_path / "tokens")
    token, stored = tokens.create(LIMITED)
    other_secret = token[:-1] + ("A" if token[-1] != "A" else "B")
    other_id = token.replace(stored.id, "a" * 12)
    malformed = [token.upper(), f"{token}A", f"hft_../../../etc/_{'A' * 43}", "", f"{token} {token}"]

    assert (refusal(tokens, other_secret), refusal(tokens, other_id)) == ("unknown token", "unknown token")
    assert {refusal(tokens, text) for text in malformed} == {"malformed token"}


def test_a_file_that_others_could_have_written_is_no_token(tmp_path: Path):
    tokens = Tokens(tmp_path / "tokens")
    token, stored = tokens.create(LIMITED)
    file = tmp_path / "tokens" / f"{stored.id}.json"

    file.chmod(0o666)
    assert refusal(tokens, token) == "unknown token"
    file.chmod(0o600)
    tokens.authenticate(token)
    moved = tmp_path / "elsewhere.json"
    file.rename(moved)
    file.symlink_to(moved)

    assert refusal(tokens, token) == "unknown token"


def test_a_damaged_file_is_no_token(tmp_path: Path):
    tokens = Tokens(tmp_path / "tokens")
    token, stored = tokens.create(LIMITED)
    file = tmp_path / "tokens" / f"{stored.id}.json"
    whole = file.read_text()

    for text in ("", "{}", whole.replace("git.log", "...."), whole.replace(stored.id, "b" * 12, 1)):
        file.write_text(text)
        assert refusal(tokens, token) == "unknown token"


def test_revoking_an_unknown_token_is_an_error(tmp_path: Path):
    with pytest.raises(HoldfastError, match=re.escape("There is no token 'nope'.")):
        Tokens(tmp_path / "tokens").revoke("nope")
