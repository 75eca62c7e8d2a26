"""What a record says, and what it cannot be made to say."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.audit.record import AuditKind, Subject, hash_arguments, read_record, write_record
from holdfast.audit.record import record as make_record
from holdfast.model.context import SessionContext
from holdfast.model.mask import MASKED, Mask
from holdfast.model.trust import Trust
from tests.audit.records import SESSION, record


@pytest.mark.promise("AUD-01")
def test_a_record_says_when_who_what_and_what_came_of_it() -> None:
    written = json.loads(write_record(record(7, arguments={"path": "a"}), Mask()))

    assert written == {
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


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_record(write_record(record(3), Mask())) == record(3)


@given(name=st.text(), reason=st.text())
def test_whatever_is_in_its_names_a_record_is_one_line_of_ascii(name: str, reason: str) -> None:
    line = write_record(record(server=name, tool=name, reason=reason), Mask())

    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["server"] == name[:256]


@pytest.mark.promise("AUD-01")
def test_arguments_are_kept_by_their_hash_and_by_themselves_only_when_given() -> None:
    arguments = b'{"path": "a"}'
    written = write_record(record(arguments_hash=hash_arguments(arguments)), Mask())

    assert json.loads(written)["arguments_hash"] == hashlib.sha256(arguments).hexdigest()
    assert json.loads(written)["arguments"] is None
    assert hash_arguments(arguments) != hash_arguments(b'{"path":"a"}')


@pytest.mark.promise("AUD-03")
def test_no_field_of_a_record_shows_a_secret() -> None:
    secret = "s3cr3t-canary-value"
    shown = write_record(
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

    assert secret not in shown
    assert "abcdef.ghijkl" not in shown
    assert json.loads(shown)["arguments"] == {"deep": [{"x": f"a{MASKED}b"}], "password": MASKED, MASKED: 1}


def test_a_record_made_in_a_session_has_its_context() -> None:
    context = SessionContext(
        session_id=SESSION, trust_level=Trust.DIRECT, workspace_id="garden", user_id="ada"
    )

    made = make_record(
        AuditKind.DENIED, context, Subject(server="files", tool="rm"), outcome="denied", reason="no"
    )

    assert replace(made, at=record().at) == record(
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
