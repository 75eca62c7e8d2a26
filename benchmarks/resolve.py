"""The cost of injecting the context into servers, and whether it is linear."""

import statistics
import time

from benchmarks.result import Result
from holdfast.model.context import SessionContext
from holdfast.model.ids import new_session_id
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.inject import inject

_ROUNDS = 51


def results() -> list[Result]:
    """Injection for 10 servers, and per server with 1,000."""
    ten, thousand = _measure_milliseconds(10), _measure_milliseconds(1000)
    return [
        Result(name="resolve.inject10", ours=ten, peer=1.0, peer_name="the promise", unit="ms", goal="<= 1"),
        Result(
            name="resolve.inject.per_server",
            ours=thousand / 1000,
            peer=ten / 10,
            peer_name="ours at 10 servers",
            unit="ms",
            goal="<= 2",
        ),
    ]


def _measure_milliseconds(count: int) -> float:
    context = SessionContext(
        session_id=new_session_id(), trust_level=Trust.DIRECT, workspace_id="w", user_id="u"
    )
    env = {f"VARIABLE_{number}": "value" for number in range(10)}
    servers = tuple(
        ServerSpec(name=f"s{number}", source=Source.USER, transport=Stdio(command="x", env=env))
        for number in range(count)
    )
    resolution = Resolution(servers=servers)
    took: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        inject(resolution, context)
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)
