"""Remove from a server's message the `_meta` that only Holdfast may send."""

from typing import Any

import msgspec

from holdfast.model.normal_form import fold_key
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

_OWN_PREFIX = "dev.holdfast/"
_decode_members = make_decoder(dict[str, Raw])


def without_own_meta(params: Raw) -> Raw | None:
    """The params without Holdfast's own keys in `_meta`. None if the params or their `_meta` are not objects."""
    try:
        members: dict[str, Any] = {**_decode_members(params)}
        if "_meta" not in members:
            return params
        meta = _decode_members(members["_meta"])
    except DECODE_ERRORS:
        return None
    members["_meta"] = {
        key: value for key, value in meta.items() if not fold_key(key).startswith(_OWN_PREFIX)
    }
    return Raw(msgspec.json.encode(members))
