"""The workspaces registered on this machine, looked up when the first tool needs one."""

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.model.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.workspaces import Registry

FOLDER = "workspaces"


class Registered:
    """The registry in Holdfast's own data folder."""

    @cached_property
    def _registry(self) -> "Registry":
        from holdfast import settings
        from holdfast.workspaces import Registry

        return Registry(settings.load().data_dir / FOLDER)

    def get(self, slug: str) -> Workspace:
        """The workspace of this slug."""
        return self._registry.get(slug)

    def find(self, address: str) -> Workspace | None:
        """The workspace that an address means."""
        return self._registry.find(address)
