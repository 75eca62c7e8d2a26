import asyncio

import pytest

from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.gateway.refusal_audit import RefusalAudit
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError

pytestmark = pytest.mark.anyio


async def test_a_flood_of_refusals_becomes_few_records_that_count_all_of_them():
    written: list[tuple[str, str]] = []

    async def write(code: Code, reason: str) -> None:
        written.append((code.name, reason))

    refusals = RefusalAudit(write)
    for number in range(1000):
        error = NotAuthenticatedError("No.", reason="unknown token")
        error.client_address = f"10.0.0.{number % 200}"
        refusals.add(error, None)
    refusals.add(HoldfastError(codes.HOST_NOT_ALLOWED, "'evil' is not a host name."), Credential(id="abc"))
    await refusals.flush()

    assert len(written) == 66
    assert written[0] == ("UNAUTHENTICATED", "MCP client (address 10.0.0.0): unknown token (5 times)")
    assert written[-2] == ("UNAUTHENTICATED", f"other senders ({1000 - 64 * 5} times)")
    assert written[-1] == ("HOST_NOT_ALLOWED", "MCP client (token abc): 'evil' is not a host name.")


async def test_refusals_that_are_waiting_are_written_when_the_gateway_ends():
    written: list[str] = []

    async def write(code: Code, reason: str) -> None:
        written.append(reason)

    refusals = RefusalAudit(write)
    task = asyncio.create_task(refusals.run())
    await asyncio.sleep(0)
    refusals.add(NotAuthenticatedError("No.", reason="no token"), None)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert written == ["no token"]
