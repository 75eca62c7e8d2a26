"""Answer requests for resources, prompts and completions, with the guards, context and codes of tools."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar, cast

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.authentication import Authenticator, CallerIdentity
from holdfast.toolkit.call import Call
from holdfast.toolkit.client_requests import CANNOT_ASK
from holdfast.toolkit.completion import find_choices, to_completion
from holdfast.toolkit.dispatcher import Dispatcher
from holdfast.toolkit.envelope import split_hint
from holdfast.toolkit.failures import check_result_size
from holdfast.toolkit.features import Features
from holdfast.toolkit.make_call import make_call
from holdfast.toolkit.message import Messages, to_messages
from holdfast.toolkit.outcome import Failed
from holdfast.toolkit.prompt import ServedPrompt
from holdfast.toolkit.resource import ServedResource, find_uri, to_contents
from holdfast.toolkit.round_trips import Target
from holdfast.toolkit.signature import WORKSPACE
from holdfast.toolkit.subscriptions import MAX_LISTEN_BYTES, ListenParams, Subscriber, Subscriptions
from holdfast.toolkit.tool import Tool
from holdfast.toolkit.uri_template import MAX_URI
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import McpRequest
from holdfast.wire.messages import EMPTY_OBJECT, PeerError, Raw, encode

T = TypeVar("T")
# The modern era has no JSON-RPC code of its own for an unknown resource.
_MODERN_RPC_CODES = {codes.UNKNOWN_RESOURCE.rpc_code: codes.BAD_ARGUMENT.rpc_code}
_RESULT_TOO_LARGE_RPC_CODE = codes.INTERNAL_ERROR.rpc_code  # the request itself is valid


class RunHandler(Protocol):
    """Runs `work`, which calls the handler of a resource or prompt. The handler may ask the client questions."""

    async def __call__(
        self,
        request: McpRequest,
        tool: Tool,
        target: Target,
        work: Callable[[Call], Coroutine[Any, Any, Any]],
    ) -> Any: ...


class FeatureServer:
    """Answers the requests about the resources, prompts and completions of a box."""

    def __init__(
        self,
        features: Features,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        subscriptions: Subscriptions,
        run: RunHandler,
    ) -> None:
        self._features = features
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._subscriptions = subscriptions
        self._run = run

    async def answer(self, request: McpRequest) -> Any:
        """The result of one request; raises METHOD_NOT_FOUND for methods that are not about these features."""
        is_modern = request.client.era is Era.MODERN
        match request.method:
            case "resources/read":
                return await self._read_resource(request)
            case "resources/list" | "resources/templates/list" | "prompts/list":
                return self._list(request)
            case "prompts/get":
                return await self._get_prompt(request)
            case "completion/complete":
                return await self._complete(request)
            case "resources/subscribe" if not is_modern:
                return await self._subscribe(request)
            case "resources/unsubscribe" if not is_modern:
                self._authenticator.authenticate(request, mutates=True)
                self._subscriptions.remove_uri(request.connection, request.decode_params(_UriParams).uri)
                return EMPTY_OBJECT
            case "subscriptions/listen" if is_modern:
                return await self._listen(request)
            case _:
                raise HoldfastError(
                    codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r} here."
                )

    def _list(self, request: McpRequest) -> JsonObject:
        caller = self._authenticator.authenticate(request, mutates=False)
        if request.decode_params(_ListParams).cursor is not None:
            raise HoldfastError(codes.BAD_CURSOR, "Everything is on one page: list it without a cursor.")
        session_id = caller.session.session_id if caller.session else ""
        if request.method == "prompts/list":
            self._subscriptions.add_list(request, session_id, "prompts")
            return {"prompts": [prompt.listing() for prompt in list(self._features.prompts.values())]}
        self._subscriptions.add_list(request, session_id, "resources")
        are_templates = request.method == "resources/templates/list"
        listed: list[Json] = [
            resource.listing()
            for resource in list(self._features.resources.values())
            if resource.is_template is are_templates
        ]
        return {"resourceTemplates" if are_templates else "resources": listed}

    async def _read_resource(self, request: McpRequest) -> Any:
        uri = request.decode_params(_UriParams).uri
        caller = self._authenticator.authenticate(request, mutates=False)
        served, texts = self._find_resource(request, uri)

        async def read(call: Call) -> dict[str, Raw]:
            outcome = await self._dispatcher.run_feature(
                served.tool,
                msgspec.structs.replace(call, uri=uri),
                uri.encode(),
                lambda: served.arguments.parse(texts),
                lambda returned: to_contents(served, uri, returned),
            )
            contents = self._result_or_error(request, outcome, uri=uri)
            return {"contents": self._encode(request, uri[:200], contents, uri=uri)}

        return await self._run(request, served.tool, Target(caller, request.method, uri, EMPTY_OBJECT), read)

    def _find_resource(self, request: McpRequest, uri: str) -> tuple[ServedResource, dict[str, str]]:
        """The resource with this URI, and the values of the variables in the URI; raises UNKNOWN_RESOURCE."""
        found = find_uri(self._features.resources, uri) if len(uri) <= MAX_URI else None
        if found is None:
            failure = Failed(
                code=codes.UNKNOWN_RESOURCE.name, message=f"There is no resource {uri[:200]!r} here."
            )
            raise self._to_error(request, failure, uri=uri[:MAX_URI])
        return found

    async def _get_prompt(self, request: McpRequest) -> Any:
        params = request.decode_params(_PromptParams)
        caller = self._authenticator.authenticate(request, mutates=False)
        prompt, arguments = self._find_prompt(params.name), params.arguments or {}

        target = Target(caller, request.method, prompt.name, Raw(msgspec.json.encode(arguments)))

        async def get(call: Call) -> dict[str, Any]:
            outcome = await self._dispatcher.run_feature(
                prompt.tool,
                call,
                target.arguments,
                lambda: prompt.arguments.parse(arguments),
                lambda returned: to_messages(cast("Messages", returned)),
            )
            messages = self._result_or_error(request, outcome)
            result: dict[str, Any] = {"messages": self._encode(request, prompt.name, messages)}
            if prompt.tool.definition.description:
                result["description"] = prompt.tool.definition.description
            return result

        return await self._run(request, prompt.tool, target, get)

    def _find_prompt(self, name: str) -> ServedPrompt:
        prompt = self._features.prompts.get(name)
        if prompt is None:
            raise HoldfastError(codes.UNKNOWN_PROMPT, f"There is no prompt {name[:80]!r} here.")
        return prompt

    async def _complete(self, request: McpRequest) -> JsonObject:
        """Suggest values for an argument. The guards of the prompt or the resource are checked first."""
        params = request.decode_params(_CompleteParams)
        caller = self._authenticator.authenticate(request, mutates=False)
        feature = self._find_completed_feature(params.ref)
        name, value = params.argument.name, params.argument.value
        if name not in feature.tool.signature.arguments.parameters:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"{feature.tool.name[:200]!r} has no argument {name[:80]!r}."
            )
        others = dict(params.context.arguments)
        await self._check_access(request, caller, feature.tool, others)
        completer = self._features.completers.get((feature.tool.name, name))
        if completer is None:
            return to_completion(find_choices(feature.tool, name), value, filter_by_value=True)
        schema = completer.tool.signature.arguments
        given: JsonObject = {"value": value, "arguments": {**others}, WORKSPACE: others.get(WORKSPACE, "")}
        sent = msgspec.json.encode({each: given[each] for each in given if each in schema.parameters})
        outcome = await self._dispatcher.run_feature(
            completer.tool,
            make_call(request, caller, completer.tool.name, CANNOT_ASK),
            sent,
            lambda: schema.parse(sent),
            lambda suggested: to_completion(suggested, value, filter_by_value=not completer.takes_value),
        )
        return self._result_or_error(request, outcome)

    def _find_completed_feature(self, ref: "_Reference") -> ServedPrompt | ServedResource:
        """The prompt or resource template that a completion request refers to."""
        if ref.type == "ref/prompt":
            return self._find_prompt(ref.name)
        resource = self._features.resources.get(ref.uri)
        if resource is None or not resource.is_template:
            raise HoldfastError(codes.BAD_ARGUMENT, f"There is no resource template {ref.uri[:200]!r} here.")
        return resource

    async def _subscribe(self, request: McpRequest) -> Raw:
        uri = request.decode_params(_UriParams).uri
        caller = self._authenticator.authenticate(request, mutates=True)
        served, texts = self._find_resource(request, uri)
        await self._check_access(request, caller, served.tool, texts)
        self._subscriptions.add_uri(request, caller.session.session_id if caller.session else "", uri)
        return EMPTY_OBJECT

    async def _listen(self, request: McpRequest) -> JsonObject:
        """Subscribe the client to the lists and resources that it names.

        The acknowledgement leaves out resources that the client may not read, and lists whose changes the server does not announce.
        """
        if len(request.params) > MAX_LISTEN_BYTES:
            raise HoldfastError(codes.TOO_LARGE, f"The params have more than {MAX_LISTEN_BYTES} bytes.")
        params = request.decode_params(ListenParams)
        caller = self._authenticator.authenticate(request, mutates=False)
        if request.http is not None and "text/event-stream" not in request.http.headers.get("accept", ""):
            raise HoldfastError(codes.BAD_HTTP, "Accept must allow text/event-stream for a subscription.")
        session_id = caller.session.session_id if caller.session else ""
        wanted = Subscriber(session_id)
        if self._subscriptions.can_lists_change:
            wanted.lists |= params.lists
        for uri in params.uris:
            found = find_uri(self._features.resources, uri) if len(uri) <= MAX_URI else None
            if found is not None and await self._may_use(request, caller, found[0].tool, found[1]):
                wanted.uris.add(uri)
        return await self._subscriptions.listen(request, session_id or caller.connection, wanted)

    async def _may_use(
        self, request: McpRequest, caller: CallerIdentity, tool: Tool, texts: Mapping[str, str]
    ) -> bool:
        try:
            await self._check_access(request, caller, tool, texts)
        except PeerError:
            return False
        return True

    async def _check_access(
        self, request: McpRequest, caller: CallerIdentity, tool: Tool, texts: Mapping[str, str]
    ) -> None:
        """Raise unless the caller may use a prompt or a resource with these arguments."""
        try:
            call = make_call(request, caller, tool.name, CANNOT_ASK)
            await self._dispatcher.check_access(tool, call, texts.get(WORKSPACE, ""))
        except HoldfastError as error:
            failure = Failed(code=error.code.name, message=error.message, details=error.details)
            raise self._to_error(request, failure) from None

    def _result_or_error(self, request: McpRequest, outcome: T | Failed, **more: Json) -> T:
        """The result; raises the JSON-RPC error of a failure, with `more` in its `data`."""
        if isinstance(outcome, Failed):
            raise self._to_error(request, outcome, **more)
        return outcome

    def _encode(self, request: McpRequest, name: str, value: list[JsonObject], **more: Json) -> Raw:
        """The JSON of a result; raises a JSON-RPC error if it is too large for a message."""
        encoded = encode(value)
        try:
            check_result_size(name, len(encoded))
        except HoldfastError as error:
            failure = Failed(code=error.code.name, message=error.message, details=error.details)
            raise self._to_error(request, failure, **more) from None
        return Raw(encoded)

    def _to_error(self, request: McpRequest, failed: Failed, **more: Json) -> PeerError:
        """A failure as a JSON-RPC error. Its `data` has the members of a tool's envelope, and `more`."""
        code = self._dispatcher.codes.find(failed.code) or codes.INTERNAL_ERROR
        hint, details = split_hint(failed, code)
        data: dict[str, Any] = {
            "code": code.name,
            "hint": hint,
            "retryable": code.retryable,
            "http": code.http_status,
            **more,
        }
        if failed.next_actions:
            data["next_actions"] = failed.next_actions
        if details:
            data["details"] = details
        is_modern = request.client.era is Era.MODERN
        rpc_code = _MODERN_RPC_CODES.get(code.rpc_code, code.rpc_code) if is_modern else code.rpc_code
        if code is codes.TOO_LARGE:
            rpc_code = _RESULT_TOO_LARGE_RPC_CODE
        try:
            msgspec.json.encode(data)
        except (TypeError, ValueError):  # details that cannot be encoded as JSON
            del data["details"]
        return PeerError(rpc_code, _message_with_issues(failed), data)


def _message_with_issues(failed: Failed) -> str:
    """The message of a failure, with what is wrong with each argument: clients show only the message of an error."""
    issues = failed.details.get("issues")
    if failed.code != codes.BAD_ARGUMENT.name or not isinstance(issues, list):
        return failed.message
    said = (
        f"{issue['field'] or 'arguments'}: {issue['message']}" for issue in issues if isinstance(issue, dict)
    )
    return " ".join((failed.message, *said))


class _ListParams(msgspec.Struct):
    cursor: str | None = None


class _UriParams(msgspec.Struct):
    uri: str


class _PromptParams(msgspec.Struct):
    name: str
    arguments: dict[str, str] | None = None


class _Reference(msgspec.Struct):
    type: str
    name: str = ""
    uri: str = ""


class _CompletedArgument(msgspec.Struct):
    name: str
    value: str


class _CompletionContext(msgspec.Struct, frozen=True):
    arguments: Mapping[str, str] = {}


class _CompleteParams(msgspec.Struct):
    ref: _Reference
    argument: _CompletedArgument
    context: _CompletionContext = _CompletionContext()
