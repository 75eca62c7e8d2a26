"""Ask the user of an MCP client for permission, with an elicitation."""

import json
import shlex

import msgspec

from holdfast.gateway.client_call import ClientCall, current_call
from holdfast.gateway.credential import Credential
from holdfast.model import codes
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import Json, JsonObject
from holdfast.model.visible_text import replace_invisible
from holdfast.wire.messages import PeerError, Raw
from holdfast.wire.strict_json import DECODE_ERRORS

_MAX_ARGUMENTS_LENGTH = 4000


class _Answer(msgspec.Struct):
    action: str = ""
    content: dict[str, Json] | None = None


class PermissionDoor:
    """A session's door to the user of an MCP client. It can ask for permission while one of the client's calls is in flight."""

    @property
    def capabilities(self) -> DoorCapabilities:
        """What the client of the current call supports."""
        call = current_call.get()
        return DoorCapabilities(permission=call is not None and _has_forms(call.client_info.capabilities))

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Ask with a form. Every answer except a clear yes counts as a rejection."""
        call = current_call.get()
        if call is None:
            raise HoldfastError(codes.NO_ANSWER, "The client has no call in flight on which it can be asked.")
        return await _ask(call, question)

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise _unsupported("elicitation")

    async def sample(self, params: JsonObject) -> JsonObject:
        raise _unsupported("sampling")

    async def read_text(self, path: str) -> str:
        raise _unsupported("files")

    async def write_text(self, path: str, text: str) -> None:
        raise _unsupported("files")


def how_to_answer(session_id: str) -> str:
    """What a person can do if the client cannot ask its user."""
    attach = shlex.join(("holdfast", "sessions", "attach", session_id))
    return f"To be asked in a terminal, a person can run `{attach}`; then call the tool again."


def how_to_stop_asking(credential: Credential) -> str:
    """What a person can do so that no question is asked; empty if nothing can be done."""
    return (
        f"To stop these questions, {credential.how_to_stop_asking}" if credential.how_to_stop_asking else ""
    )


def _has_forms(capabilities: JsonObject) -> bool:
    """Whether the client can show a form. An empty object means forms: earlier versions of the protocol had only these."""
    elicitation = capabilities.get("elicitation")
    return isinstance(elicitation, dict) and (not elicitation or "form" in elicitation)


async def _ask(call: ClientCall, question: PermissionQuestion) -> Decision:
    """Ask with a form that shows the call and its arguments. Return the user's decision."""
    # Invisible characters are shown as escapes, so that the user sees everything that the server will get.
    arguments = replace_invisible(
        question.call.arguments.decode(errors="replace"), lambda character: json.dumps(character)[1:-1]
    )
    if len(arguments) > _MAX_ARGUMENTS_LENGTH:
        raise HoldfastError(
            codes.TOO_LARGE,
            f"The arguments have {len(arguments)} characters, too many for a question (at most {_MAX_ARGUMENTS_LENGTH}). Send less at once.",
        )
    choices = question.choices
    params = {
        "message": f"Holdfast: allow {question.title}?\n{arguments}",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "enum": [choice.value for choice in choices],
                    "enumNames": [*choices.values()],
                }
            },
            "required": ["decision"],
        },
    }
    try:
        answer = msgspec.json.decode(
            await call.ask("elicitation/create", Raw(msgspec.json.encode(params))), type=_Answer
        )
    except PeerError as error:
        raise HoldfastError(
            codes.NO_ANSWER, f"The client could not ask its user: {error.message[:200]}"
        ) from None
    except DECODE_ERRORS:
        return Decision.REJECT
    if answer.action != "accept":
        return Decision.REJECT
    decision = (answer.content or {}).get("decision")
    return next((choice for choice in choices if choice.value == decision), Decision.REJECT)


def _unsupported(what: str) -> HoldfastError:
    return HoldfastError(
        codes.UNSUPPORTED_BY_CLIENT, f"The door of an MCP client asks for permission only, not for {what}."
    )
