"""Context tokens: signing and verifying, against PyJWT with the same key, claims and checks; and what each costs to import.

Underneath, both call the same Ed25519 of OpenSSL, which takes most of the time: the bare signature is shown too.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from secrets import token_urlsafe
from time import perf_counter, time

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.result import Result
from holdfast.model.context import SessionContext
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.token import Seen, Signer, Verifier
from holdfast.token.claims import digest_of

ROUNDS = 9
TIMES = 300
AUDIENCE = "https://files.example/mcp"
BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}}}'
    % (b"x" * 200)
)
CONTEXT = SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED, workspace_id="my-project")
BARE = "import holdfast.model.context, holdfast.model.workspace"
OURS = f"{BARE}; from holdfast.token import Verifier; from cryptography.hazmat.primitives.asymmetric import ed25519"
PEERS = f"{BARE}; import jwt; from cryptography.hazmat.primitives.asymmetric import ed25519"


def results() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer(Path(folder) / "keys")
        verifier = Verifier(signer.jwks())
        key = Ed25519PrivateKey.generate()
        public = key.public_key()
        token = signer.sign(CONTEXT, AUDIENCE, BODY)
        claims = jwt.decode(token, options={"verify_signature": False})
        theirs = jwt.encode(claims, key, "EdDSA", {"kid": "k"})
        bare = key.sign(BODY)

        def their_sign() -> object:
            now = int(time())
            said = {**claims, "iat": now, "exp": now + 60, "jti": token_urlsafe(16), "req": digest_of(BODY)}
            return jwt.encode(said, key, "EdDSA", {"kid": "k"})

        def their_verify() -> object:
            said = jwt.decode(theirs, public, ["EdDSA"], audience=AUDIENCE, issuer="holdfast", leeway=5)
            return said["req"] == digest_of(BODY)

        return [
            _compared(
                "sign", lambda: signer.sign(CONTEXT, AUDIENCE, BODY), their_sign, "PyJWT encode", "<= 1.1"
            ),
            _compared(
                "verify",
                lambda: verifier.verify(token, AUDIENCE, request=BODY),
                their_verify,
                "PyJWT decode",
                "<= 1.05",
            ),
            _compared(
                "verify_over_bare",
                lambda: verifier.verify(token, AUDIENCE, request=BODY),
                lambda: public.verify(bare, BODY),
                "Ed25519 alone",
                "<= 1.5",
            ),
            _remembered(verifier, signer),
            _imported(),
        ]


def _compared(
    name: str, ours: Callable[[], object], peer: Callable[[], object], peer_name: str, goal: str
) -> Result:
    figures = [(_microseconds(ours), _microseconds(peer)) for _ in range(ROUNDS)]
    return Result(
        name=f"token.{name}",
        ours=statistics.median(ours for ours, _ in figures),
        peer=statistics.median(peer for _, peer in figures),
        peer_name=peer_name,
        unit="us",
        goal=goal,
    )


def _remembered(verifier: Verifier, signer: Signer) -> Result:
    """What it adds to a verified token to see that it was not used before."""
    seen = Seen()
    tokens = [verifier.verify(signer.sign(CONTEXT, AUDIENCE), AUDIENCE) for _ in range(ROUNDS * TIMES)]
    began = perf_counter()
    for claims in tokens:
        seen.once(claims)
    once = (perf_counter() - began) / len(tokens) * 1e6
    token = signer.sign(CONTEXT, AUDIENCE)
    return Result(
        name="token.once",
        ours=once,
        peer=_microseconds(lambda: verifier.verify(token, AUDIENCE)),
        peer_name="our own verify",
        unit="us",
        goal="<= 0.1",
    )


def _imported() -> Result:
    """Milliseconds that the first token costs a process, over one that knows the model."""
    bare = min(_started(BARE) for _ in range(ROUNDS))
    return Result(
        name="token.import",
        ours=min(_started(OURS) for _ in range(ROUNDS)) - bare,
        peer=min(_started(PEERS) for _ in range(ROUNDS)) - bare,
        peer_name="PyJWT",
        unit="ms",
        goal="<= 0.8",
    )


def _started(code: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (perf_counter() - began) * 1000


def _microseconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    for _ in range(TIMES):
        call()
    return (perf_counter() - began) / TIMES * 1e6
