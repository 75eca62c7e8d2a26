import json
import os
import subprocess
import sys
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.token import Signer, Verifier, audience_of
from tests.token.tokens import CONTEXT, FILES, NOW, refusal_reason


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signer(tmp_path: Path, clock: Clock) -> Signer:
    return Signer(tmp_path / "keys", clock=clock)


@pytest.mark.promise("CTX-08")
def test_token_has_exactly_the_documented_claims_and_no_path(signer: Signer) -> None:
    context = SessionContext(
        session_id=CONTEXT.session_id,
        trust_level=Trust.SANDBOXED,
        workspace_id="my-project",
        cwd="/home/ann/secret",
        roots=("/home/ann/secret", "/home/ann/other"),
        user_id="ann",
        parent_session_id=CONTEXT.parent_session_id,
    )

    header, claims, _ = (urlsafe_b64decode(part + "==") for part in signer.sign(context, FILES).split("."))

    payload = json.loads(claims)
    assert json.loads(header) == {
        "alg": "EdDSA",
        "kid": key_ids(signer)[0],
        "typ": "holdfast-context+jwt",
    }
    assert len(payload.pop("jti")) == 22
    assert payload == {
        "iss": "holdfast",
        "aud": FILES,
        "sub": "sess_0123456789abcdef",
        "ws": "my-project",
        "tl": "sandboxed",
        "uid": "ann",
        "par": "sess_fedcba9876543210",
        "iat": NOW,
        "exp": NOW + 60,
    }


@settings(deadline=None)
@given(
    trust=st.sampled_from(Trust),
    workspace=st.sampled_from(["", "a", "my-project"]),
    user=st.none() | st.text(max_size=500),
    parent=st.none() | st.just(SessionId("sess_fedcba9876543210")),
    request=st.none() | st.binary(),
)
def test_verified_context_equals_the_signed_one(
    tmp_path_factory: pytest.TempPathFactory,
    trust: Trust,
    workspace: str,
    user: str | None,
    parent: SessionId | None,
    request: bytes | None,
) -> None:
    signer = Signer(tmp_path_factory.getbasetemp() / "keys", clock=lambda: NOW + 0.9)
    context = SessionContext(
        session_id=CONTEXT.session_id,
        trust_level=trust,
        workspace_id=workspace,
        user_id=user,
        parent_session_id=parent,
    )

    claims = Verifier(signer.jwks()).verify(
        signer.sign(context, FILES, request), FILES, request=request, now=NOW
    )

    assert claims.context == context


@pytest.mark.promise("CTX-08")
def test_every_token_has_a_unique_id(signer: Signer) -> None:
    verifier = Verifier(signer.jwks())

    ids = {verifier.verify(signer.sign(CONTEXT, FILES), FILES, now=NOW).token_id for _ in range(100)}

    assert len(ids) == 100


@pytest.mark.promise("CTX-08")
def test_pyjwt_verifies_our_tokens_with_our_key_set(tmp_path: Path) -> None:
    signer = Signer(tmp_path / "keys")
    (key,) = jwt.PyJWKSet.from_dict(json.loads(json.dumps(signer.jwks()))).keys

    decoded = jwt.decode(
        signer.sign(CONTEXT, FILES), key, algorithms=["EdDSA"], audience=FILES, issuer="holdfast"
    )

    assert (key.key_id, decoded["sub"]) == (key_ids(signer)[0], CONTEXT.session_id)


def test_lifetime_outside_of_1_to_60_seconds_raises(tmp_path: Path) -> None:
    for lifetime in (0, 61):
        with pytest.raises(ValueError, match="1 to 60 seconds"):
            Signer(tmp_path, lifetime=lifetime)


def test_context_too_long_for_a_header_raises(signer: Signer) -> None:
    context = SessionContext(session_id=CONTEXT.session_id, trust_level=Trust.DIRECT, user_id="x" * 8000)

    with pytest.raises(HoldfastError, match="more than 8192") as caught:
        signer.sign(context, FILES)

    assert caught.value.code == codes.BAD_ARGUMENT


def test_only_the_owner_can_read_the_key_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Signer(tmp_path / "deep" / "keys").jwks()
    finally:
        os.umask(before)

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "deep" / "keys").iterdir()}
    assert modes == {"context-keys.json": "0o600", "context-jwks.json": "0o644", "lock": "0o600"}
    assert oct((tmp_path / "deep" / "keys").stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620])
def test_key_file_that_others_can_open_is_refused_even_while_running(
    signer: Signer, tmp_path: Path, mode: int
) -> None:
    signer.sign(CONTEXT, FILES)
    (tmp_path / "keys" / "context-keys.json").chmod(mode)

    for refused in (signer, Signer(tmp_path / "keys")):
        with pytest.raises(
            HoldfastError,
            match=r"Other users can open it\. Remove it or, if you are sure that no other user has opened it, run: chmod 600",
        ) as caught:
            refused.sign(CONTEXT, FILES)
        assert caught.value.code == codes.BAD_KEY


def test_folder_that_others_can_open_is_refused_before_a_key_is_created(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(HoldfastError, match="chmod 700"):
        Signer(folder).sign(CONTEXT, FILES)

    assert list(folder.iterdir()) == []


def test_key_file_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    Signer(tmp_path / "real").jwks()
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    key = folder / "context-keys.json"

    key.symlink_to(tmp_path / "real" / "context-keys.json")
    with pytest.raises(HoldfastError, match=r"It must be a regular file that you own \(a link\)"):
        Signer(folder).sign(CONTEXT, FILES)
    key.unlink()
    os.mkfifo(key, 0o600)
    with pytest.raises(HoldfastError, match="must be a regular file"):
        Signer(folder).sign(CONTEXT, FILES)
    key.unlink()
    key.mkdir(mode=0o700)
    with pytest.raises(HoldfastError, match="must be a regular file"):
        Signer(folder).sign(CONTEXT, FILES)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_key_file_of_another_user_is_refused(signer: Signer, tmp_path: Path) -> None:
    signer.jwks()
    os.chown(tmp_path / "keys" / "context-keys.json", 65534, 65534)

    with pytest.raises(HoldfastError, match="belongs to another user"):
        signer.sign(CONTEXT, FILES)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"keys": []}', b"\xff", b'{"keys": [{"kty": "OKP"}]}'])
def test_broken_key_file_is_refused_and_not_overwritten(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    key = folder / "context-keys.json"
    key.touch(mode=0o600)
    key.write_bytes(content)

    with pytest.raises(HoldfastError) as caught:
        Signer(folder).sign(CONTEXT, FILES)

    assert (caught.value.code, key.read_bytes()) == (codes.BAD_KEY, content)


MAKE = """
import sys, pathlib
from holdfast.token import Signer
signer = Signer(pathlib.Path(sys.argv[1]))
print("ready", flush=True); sys.stdin.readline()
print(signer.jwks()["keys"][0]["kid"])
"""


@pytest.mark.slow
@pytest.mark.promise("CTX-08")
def test_eight_processes_that_start_at_once_share_one_key(tmp_path: Path) -> None:
    processes = [_started(MAKE, str(tmp_path / "keys")) for _ in range(8)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"

    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    printed = [process.communicate(timeout=30)[0] for process in processes]

    assert len(set(printed)) == 1
    assert printed[0].strip() == key_ids(Signer(tmp_path / "keys"))[0]


def test_after_rotation_the_old_key_verifies_until_its_tokens_have_expired(
    signer: Signer, clock: Clock
) -> None:
    before = signer.sign(CONTEXT, FILES)
    (old,) = key_ids(signer)

    signer.rotate()
    after = signer.sign(CONTEXT, FILES)

    both = Verifier(signer.jwks())
    assert [refusal_reason(token, both) for token in (before, after)] == [None, None]
    assert old != key_ids(signer)[0]
    assert len(key_ids(signer)) == 2
    clock.now += 120
    assert old not in key_ids(signer)


def test_key_set_says_when_an_old_key_expires(signer: Signer) -> None:
    signer.jwks()
    signer.rotate()
    old = signer.jwks()["keys"]
    assert isinstance(old, list)

    assert [key.get("exp") for key in old if isinstance(key, dict)] == [None, NOW + 120]


def test_rotation_removes_the_old_secret_from_the_disk(signer: Signer, tmp_path: Path) -> None:
    def secrets() -> list[Any]:
        kept = json.loads((tmp_path / "keys" / "context-keys.json").read_text())
        return [key.get("d") for key in kept["keys"]]

    signer.jwks()
    (old,) = secrets()
    signer.rotate()

    assert old not in (tmp_path / "keys" / "context-keys.json").read_text()
    assert [bool(secret) for secret in secrets()] == [True, False]
    assert '"d"' not in signer.public_file.read_text()


def test_revoked_key_verifies_nothing(signer: Signer) -> None:
    stolen = signer.sign(CONTEXT, FILES)
    verifier = Verifier(signer.public_file)
    assert refusal_reason(stolen, verifier) is None

    signer.rotate(revoke=True)

    assert refusal_reason(stolen, verifier) == "unknown_key"
    assert refusal_reason(signer.sign(CONTEXT, FILES), verifier) is None


def test_other_processes_sign_their_next_token_with_the_new_key(
    signer: Signer, tmp_path: Path, clock: Clock
) -> None:
    other = Signer(tmp_path / "keys", clock=clock)
    other.sign(CONTEXT, FILES)

    signer.rotate(revoke=True)

    assert refusal_reason(other.sign(CONTEXT, FILES), Verifier(signer.jwks())) is None


def test_missing_public_file_is_written_again(signer: Signer, tmp_path: Path) -> None:
    signer.jwks()
    signer.public_file.unlink()

    again = Signer(tmp_path / "keys", clock=lambda: NOW)

    assert refusal_reason(again.sign(CONTEXT, FILES), Verifier(again.public_file)) is None


@pytest.mark.slow
def test_concurrent_rotations_lose_no_key(signer: Signer, tmp_path: Path) -> None:
    signer.jwks()
    code = (
        "import sys, pathlib; from holdfast.token import Signer\nSigner(pathlib.Path(sys.argv[1])).rotate()"
    )
    processes = [_started(code, str(tmp_path / "keys")) for _ in range(6)]
    for process in processes:
        process.communicate(timeout=30)

    assert [process.returncode for process in processes] == [0] * 6
    assert len(key_ids(Signer(tmp_path / "keys", clock=time.time))) == 7


@pytest.mark.parametrize(
    ("url", "audience"),
    [
        ("https://Files.Example/mcp", "https://files.example/mcp"),
        ("HTTPS://files.example:443/mcp/", "https://files.example/mcp"),
        ("https://ann:secret@files.example/mcp?tenant=a#top", "https://files.example/mcp?tenant=a"),
        ("https://files.example/mcp/?b=%20c&a", "https://files.example/mcp?b=+c&a="),
        ("https://files.example/mcp?", "https://files.example/mcp"),
        ("http://files.example.:80", "http://files.example"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("https://files.example/MCP", "https://files.example/MCP"),
    ],
)
def test_audience_is_the_normalized_url(url: str, audience: str) -> None:
    assert audience_of(url) == audience
    assert audience_of(audience) == audience


@pytest.mark.parametrize(
    "url", ["", "files", "ftp://files.example", "https://", "https://x:y:z/", "https://x:99999"]
)
def test_audience_of_a_bad_url_raises(url: str) -> None:
    with pytest.raises(HoldfastError, match="is not an http or https URL"):
        audience_of(url)


def key_ids(signer: Signer) -> list[Any]:
    listed = signer.jwks()["keys"]
    assert isinstance(listed, list)
    return [key["kid"] for key in listed if isinstance(key, dict)]


def _started(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
