"""A call, as logs and tracebacks show it."""

import pytest

from holdfast.model.call import Forwarding, ToolCall


@pytest.mark.promise("AUD-03")
def test_the_representation_of_a_call_shows_nothing_that_its_caller_sent() -> None:
    forwarding = Forwarding(params={"task": "hunter22"}, capabilities={"roots": "hunter22"})
    call = ToolCall(
        call_id="call_1",
        server="s",
        tool="t",
        arguments=b'{"password": "hunter22"}',
        meta={"key": "hunter22"},
        forwarding=forwarding,
    )

    assert (repr(call), repr(forwarding)) == ("<ToolCall call_1 s t>", "<Forwarding not permitted>")
