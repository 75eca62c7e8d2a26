"""Several doors, of which one reads and writes the files."""

import pytest

from holdfast.model.door import DoorCapabilities
from holdfast.model.ids import new_session_id
from holdfast.session.doors import Doors
from holdfast.session.subscription import EventFeed
from holdfast.store.memory import MemoryStore
from tests.session.support import ScriptedUser

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-03")]


class Editor(ScriptedUser):
    """A door that reads these files."""

    capabilities = DoorCapabilities(permission=True, read_files=True)

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__()
        self.files = files

    async def read_text(self, path: str) -> str:
        return self.files[path]


async def test_files_are_opened_by_the_first_door_that_can():
    doors = Doors(EventFeed(new_session_id(), MemoryStore()))
    terminal, one, two = ScriptedUser(), Editor({"/f": "one"}), Editor({"/f": "two"})
    attached = {user: doors.attach(user) for user in (terminal, one, two)}
    first = await doors.read_text("/f")
    doors.detach(attached[one])
    second = await doors.read_text("/f")
    doors.detach(attached[two])

    assert (first, second, doors.capabilities.read_files) == ("one", "two", False)
