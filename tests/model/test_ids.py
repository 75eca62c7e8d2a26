"""Ids are never used twice."""

import os
from collections.abc import Callable

import pytest

from holdfast.model.ids import new_call_id, new_message_id, new_session_id, new_turn_id


@pytest.mark.parametrize("new_id", [new_call_id, new_message_id, new_session_id, new_turn_id])
def test_ids_differ(new_id: Callable[[], str]):
    assert len({new_id() for _ in range(1000)}) == 1000


def test_forked_process_has_other_ids():
    new_call_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, "\n".join(new_call_id() for _ in range(10)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        of_child = file.read().split()

    assert len(of_child) == 10
    assert {new_call_id() for _ in range(200)}.isdisjoint(of_child)
