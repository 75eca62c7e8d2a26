"""Context tokens: our own JWS against PyJWT and joserfc, with the same key, claims and checks; and the cost of each import.

All three call the same Ed25519 of OpenSSL, which takes most of the time: the bare signature is shown too. What a library
adds to a whole call is measured over real links to toolkit servers, one per library, in turns of a few calls.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, sleep

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.jose import LIBRARIES
from benchmarks.links_http import our_links
from benchmarks.result import Result
from holdfast.connect.connection import Connection
from holdfast.model.context import SessionContext
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.token import ReplayCache, Signer, Verifier
from holdfast.wire.mcp.eras import Era

ROUNDS = 9
TIMES = 300
CALL_ROUNDS = 150
CALLS_PER_ROUND = 20
ROOT = Path(__file__).resolve().parent.parent
SERVER = "benchmarks.servers.token_echo"
AUDIENCE = "https://files.example/mcp"
TEXT = "x" * 200
BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}}}'
    % TEXT.encode()
)
CONTEXT = SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED, workspace_id="my-project")
BARE = "import holdfast.model.context, holdfast.model.workspace"
ED25519 = "from cryptography.hazmat.primitives.asymmetric import ed25519"
IMPORTS = {
    "ours": f"{BARE}; from holdfast.token import Verifier; {ED25519}",
    "PyJWT": f"{BARE}; import jwt; {ED25519}",
    "joserfc": f"{BARE}; import joserfc.jws; {ED25519}",
}


def results() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        signers = {name: library.signer(keys) for name, library in LIBRARIES.items()}
        verifiers = {name: library.verifier(signers["ours"].jwks()) for name, library in LIBRARIES.items()}
        token = signers["ours"].sign(CONTEXT, AUDIENCE, BODY)
        signing = _medians({name: _sign(signer) for name, signer in signers.items()})
        key = Ed25519PrivateKey.generate()
        public, signature = key.public_key(), key.sign(BODY)
        verifying = _medians(
            {name: _verify(verifier, token) for name, verifier in verifiers.items()}
            | {"bare": lambda: public.verify(signature, BODY)}
        )
        bare = verifying.pop("bare")
        return [
            *_compared("sign", signing, "us", "<= 1.1"),
            *_compared("verify", verifying, "us", "<= 1.05"),
            Result(
                name="token.verify_over_bare",
                ours=verifying["ours"],
                peer=bare,
                peer_name="Ed25519 alone",
                unit="us",
                goal="<= 1.5",
            ),
            *_compared("call", asyncio.run(_calls(keys)), "us", ""),
            _replay_check(verifiers["ours"], signers["ours"]),
            *_compared("import", _imports(), "ms", "<= 0.8"),
        ]


def _compared(name: str, figures: dict[str, float], unit: str, goal: str) -> list[Result]:
    return [
        Result(
            name=f"token.{name}.{peer.lower()}",
            ours=figures["ours"],
            peer=figures[peer],
            peer_name=peer,
            unit=unit,
            goal=goal,
        )
        for peer in figures
        if peer != "ours"
    ]


def _sign(signer: Signer) -> Callable[[], object]:
    return lambda: signer.sign(CONTEXT, AUDIENCE, BODY)


def _verify(verifier: Verifier, token: str) -> Callable[[], object]:
    return lambda: verifier.verify(token, AUDIENCE, request=BODY)


def _medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    rounds = [{name: _microseconds(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in calls}


async def _calls(keys: Path) -> dict[str, float]:
    """Microseconds of a warm call that is signed and verified by each library."""
    arguments = msgspec.Raw(msgspec.json.encode({"text": TEXT}))
    times: dict[str, list[float]] = {name: [] for name in LIBRARIES}
    with ExitStack() as servers:
        async with AsyncExitStack() as stack:
            links: dict[str, Connection] = {}
            for name, library in LIBRARIES.items():
                signer = library.signer(keys)
                url = servers.enter_context(_server(name, signer.public_file))
                connect = await stack.enter_async_context(our_links(url, Era.MODERN, signer))
                links[name] = await connect()
            names = list(links)
            for number in range(CALL_ROUNDS):
                for name in names if number % 2 else names[::-1]:
                    for _ in range(CALLS_PER_ROUND):
                        began = perf_counter()
                        await links[name].call("echo", arguments)
                        times[name].append(perf_counter() - began)
    # The lower quartile: the machine's other work disturbs it least.
    return {
        name: statistics.quantiles(figures[len(figures) // 10 :], n=4)[0] * 1e6
        for name, figures in times.items()
    }


@contextmanager
def _server(library: str, public_keys: Path) -> Iterator[str]:
    command = [sys.executable, "-m", SERVER, library, "--http", "127.0.0.1:0", "--keys", str(public_keys)]
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stderr=stderr)
        try:
            yield _wait_for_url(process, stderr.fileno())
        finally:
            process.terminate()
            process.wait()


def _wait_for_url(process: subprocess.Popen[bytes], stderr: int) -> str:
    while process.poll() is None:
        output = Path(f"/proc/self/fd/{stderr}").read_text()
        if found := re.search(r"listening url=(\S+)", output):
            return found[1]
        sleep(0.02)
    raise AssertionError("The server did not start.")


def _replay_check(verifier: Verifier, signer: Signer) -> Result:
    """What the check for replays adds to a verified token."""
    replays = ReplayCache()
    token = signer.sign(CONTEXT, AUDIENCE)
    checking: list[float] = []
    verifying: list[float] = []
    for _ in range(ROUNDS):
        tokens = iter([verifier.verify(signer.sign(CONTEXT, AUDIENCE), AUDIENCE) for _ in range(TIMES)])
        checking.append(_microseconds(lambda tokens=tokens: replays.check(next(tokens))))
        verifying.append(_microseconds(lambda: verifier.verify(token, AUDIENCE)))
    return Result(
        name="token.replay_check",
        ours=statistics.median(checking),
        peer=statistics.median(verifying),
        peer_name="our own verify",
        unit="us",
        goal="<= 0.1",
    )


def _imports() -> dict[str, float]:
    """Milliseconds that the first token costs a process that has imported the model."""
    rounds = [(_run(BARE), {name: _run(code) for name, code in IMPORTS.items()}) for _ in range(ROUNDS)]
    bare = min(bare for bare, _ in rounds)
    return {name: min(times[name] for _, times in rounds) - bare for name in IMPORTS}


def _run(code: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (perf_counter() - began) * 1000


def _microseconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    for _ in range(TIMES):
        call()
    return (perf_counter() - began) / TIMES * 1e6
