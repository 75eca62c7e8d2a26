"""Audit records: their content, encoding and masking."""

import hmac
import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.audit.approvals import approval_record
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.record import (
    AuditKind,
    Subject,
    decode_record,
    encode_record,
    make_record,
)
from holdfast.masking import MASKED
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.store.types import Approval
from tests.audit.records import SESSION, record


@pytest.mark.promise("AUD-01")
def test_record_contains_time_session_subject_and_outcome() -> None:
    content = json.loads(encode_record(record(7, arguments={"path": "a"}), Mask()))

    assert content == {
        "at": "2026-11-01T12:00:00.000007+00:00",
        "kind": "call",
        "session_id": SESSION,
        "workspace_id": "garden",
        "trust_level": "sandboxed",
        "user_id": "",
        "server": "files",
        "tool": "read",
        "call_id": "call_7",
        "outcome": "completed",
        "reason": "",
        "duration_ms": 1.5,
        "arguments_hash": "c0ffee",
        "arguments": {"path": "a"},
    }


def test_encoded_record_decodes_to_the_same_record() -> None:
    assert decode_record(encode_record(record(3), Mask())) == record(3)


@given(name=st.text(), reason=st.text())
def test_record_is_always_one_line_of_ascii(name: str, reason: str) -> None:
    line = encode_record(record(server=name, tool=name, reason=reason), Mask())

    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["server"] == name[:256]


@pytest.mark.promise("AUD-01")
def test_arguments_are_hashed_and_stored_only_if_given(tmp_path: Path) -> None:
    arguments, hash_arguments = b'{"path": "a"}', ArgumentHasher(tmp_path / "keys")
    written = encode_record(record(arguments_hash=hash_arguments(arguments)), Mask())

    assert json.loads(written)["arguments_hash"] == ArgumentHasher(tmp_path / "keys")(arguments)
    assert json.loads(written)["arguments"] is None
    assert hash_arguments(arguments) != hash_arguments(b'{"path":"a"}')


@pytest.mark.parametrize("size", [0, 63, 64, 65, 1000])
def test_hash_of_arguments_is_an_hmac_of_the_standard_library(tmp_path: Path, size: int) -> None:
    arguments = b"x" * size

    hashed = ArgumentHasher(tmp_path)(arguments)

    key = bytes.fromhex((tmp_path / "audit-key").read_text())
    assert hashed == f"hmac-sha256:{hmac.digest(key, arguments, 'sha256').hex()}"


@given(at=st.datetimes(timezones=st.just(UTC)))
def test_time_of_a_record_has_microseconds_and_the_offset(at: datetime) -> None:
    written = encode_record(record(at=at), Mask())

    assert json.loads(written)["at"] == at.isoformat(timespec="microseconds")


def test_key_for_hashes_is_private_and_one_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    hashes = {ArgumentHasher(tmp_path / "keys")(b"{}") for _ in range(2)}
    file = tmp_path / "keys" / "audit-key"
    mode = stat.S_IMODE(file.stat().st_mode)
    file.write_text("00\n")

    assert (len(hashes), mode, [path.name for path in file.parent.iterdir()]) == (1, 0o600, ["audit-key"])
    with pytest.raises(HoldfastError, match="audit-key' is not a key") as caught:
        ArgumentHasher(tmp_path / "keys")(b"{}")
    assert caught.value.code is codes.BAD_KEY


def test_hashes_need_no_file_if_the_key_cannot_be_stored(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()

    hash_arguments = ArgumentHasher(tmp_path / "a file" / "keys")

    assert hash_arguments(b"{}") == hash_arguments(b"{}")


@pytest.mark.promise("AUD-03")
def test_secrets_are_masked_in_every_field() -> None:
    secret = "s3cr3t-canary-value"
    encoded = encode_record(
        record(
            server=f"s {secret}",
            tool=secret,
            call_id=secret,
            user_id=secret,
            outcome=secret,
            reason=f"HTTP 401: Authorization: Bearer abcdef.ghijkl and {secret}",
            arguments={"deep": [{"x": f"a{secret}b"}], "password": "other", secret: 1},
        ),
        Mask.of([secret]),
    )

    assert secret not in encoded
    assert "abcdef.ghijkl" not in encoded
    assert json.loads(encoded)["arguments"] == {"deep": [{"x": f"a{MASKED}b"}], "password": MASKED, MASKED: 1}


def test_make_record_copies_the_session_context() -> None:
    context = SessionContext(
        session_id=SESSION, trust_level=Trust.DIRECT, workspace_id="garden", user_id="ada"
    )

    made = make_record(
        AuditKind.DENIED,
        context,
        Subject(server="files", tool="rm"),
        at=record().at,
        outcome="denied",
        reason="no",
    )

    assert made == record(
        kind=AuditKind.DENIED,
        trust_level=Trust.DIRECT,
        user_id="ada",
        tool="rm",
        call_id="",
        outcome="denied",
        reason="no",
        duration_ms=0.0,
        arguments_hash="",
    )


def test_record_of_a_confined_approval_says_what_was_granted():
    grant = json.dumps({"program_paths": ["/opt"], "readable": ["/data"], "network": ["api.example"]})
    key = json.dumps(["confined server", "/p/.mcp.json", "weather", grant])
    record = approval_record(
        Approval(key=key, content_hash="x", by="ada", at=datetime(2026, 1, 1, tzinfo=UTC))
    )

    assert record.reason == (
        "the entry, to run confined, in /p/.mcp.json, network: api.example, readable: /data, by ada"
    )
