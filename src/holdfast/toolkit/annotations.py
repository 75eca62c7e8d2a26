"""Hints for clients about what a tool may do; they trust the tool's author, and so bind nobody."""

import msgspec


class Annotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Left out, a hint follows from the operation type."""

    read_only: bool | None = msgspec.field(default=None, name="readOnlyHint")
    destructive: bool | None = msgspec.field(default=None, name="destructiveHint")
    idempotent: bool | None = msgspec.field(default=None, name="idempotentHint")
    open_world: bool | None = msgspec.field(default=None, name="openWorldHint")

    def over(self, defaults: "Annotations") -> "Annotations":
        """These hints, and the defaults where there are none."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(defaults, **given)


FOLLOWS = Annotations()
"""No hint of the author's own."""
