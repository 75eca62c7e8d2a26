"""Resources and resource templates: data that clients read by its URI."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.check_options import check_options
from holdfast.toolkit.content import Resource
from holdfast.toolkit.feature_handler import BoxContext, FeatureOptions, TextArguments, build_handler
from holdfast.toolkit.json_values import encode_json
from holdfast.toolkit.signature import WORKSPACE
from holdfast.toolkit.tool import Tool
from holdfast.toolkit.uri_template import UriTemplate, read_template


class ResourceOptions(FeatureOptions, total=False):
    """The keyword arguments of `@box.resource(...)`."""

    mime_type: str
    size: int
    """The size in bytes, if it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResource:
    """A resource, or a template of resources, that passed all checks."""

    template: UriTemplate
    name: str
    """The name that clients show."""
    mime_type: str
    size: int | None
    tool: Tool
    arguments: TextArguments
    handler: Callable[..., Any]
    options: ResourceOptions

    @property
    def is_template(self) -> bool:
        return bool(self.template.variables)

    def listing(self) -> JsonObject:
        """The resource as clients see it in a list."""
        definition = self.tool.definition
        key = "uriTemplate" if self.is_template else "uri"
        listed: dict[str, Any] = {key: self.template.text, "name": self.name}
        if definition.title:
            listed["title"] = definition.title
        if definition.description:
            listed["description"] = definition.description
        if self.mime_type:
            listed["mimeType"] = self.mime_type
        if self.size is not None and not self.is_template:
            listed["size"] = self.size
        if definition.meta is not None:
            listed["_meta"] = definition.meta
        return listed


def build_resource(
    uri: str, handler: Callable[..., Any], options: ResourceOptions, box: BoxContext
) -> ServedResource:
    """Check a resource; raises BAD_TOOL when its URI and its handler do not fit together."""
    template = read_template(uri)
    check_options("@box.resource", options, ResourceOptions.__annotations__)
    tool = build_handler(handler, uri, options, box)
    parameters = tool.signature.arguments.parameters
    for name in template.variables:
        if name not in parameters:
            raise _bad_resource(uri, f"the handler has no parameter {name!r}")
    for name, parameter in parameters.items():
        if parameter.required and name not in template.variables:
            raise _bad_resource(uri, f"the URI has no {{{name}}} for the handler's parameter {name!r}")
        if name in template.query and parameter.required:
            raise _bad_resource(uri, f"{name!r} is in the query and may be left out, so it needs a default")
        if name not in template.variables and name != WORKSPACE:
            raise _bad_resource(
                uri, f"the URI has no {{{name}}}, so no client can send the parameter {name!r}"
            )
    return ServedResource(
        template=template,
        name=options.get("name") or _name_of(handler) or uri,
        mime_type=options.get("mime_type", ""),
        size=options.get("size"),
        tool=tool,
        arguments=TextArguments(tool),
        handler=handler,
        options=options,
    )


def to_contents(served: ServedResource, uri: str, returned: object) -> list[JsonObject]:
    """What a handler returned, as the contents of a resource: text, bytes, `Resource`s, or data as JSON."""
    if isinstance(returned, list | tuple):
        parts = cast("list[object]", returned)
        if parts and all(isinstance(part, Resource) for part in parts):
            return [_resource_content(part) for part in parts if isinstance(part, Resource)]
    if isinstance(returned, Resource):
        return [_resource_content(returned)]
    if returned is None:
        raise TypeError(
            f"The handler of {served.template.text} returned None: return a string, bytes or data."
        )
    if isinstance(returned, str):
        kind, content = "text/plain", returned
    elif isinstance(returned, bytes | bytearray):
        kind, content = "application/octet-stream", bytes(returned)
    else:
        kind, content = "application/json", encode_json(returned).decode()
    return [_resource_content(Resource(uri=uri, content=content, mime_type=served.mime_type or kind))]


def find_uri(
    resources: Mapping[str, ServedResource], uri: str
) -> tuple[ServedResource, dict[str, str]] | None:
    """The resource with this URI, and the variables in the URI; None if there is none.

    A resource without variables comes first, then the templates in the order in which they were added.
    """
    exact = resources.get(uri)
    if exact is not None and not exact.is_template:
        return exact, {}
    for served in resources.values():
        if served.is_template and (values := served.template.match(uri)) is not None:
            return served, values
    return None


def _name_of(handler: Callable[..., Any]) -> str:
    """The name of a function; empty for a lambda."""
    name = getattr(handler, "__name__", "")
    return name if name.isidentifier() else ""


def _resource_content(resource: Resource) -> JsonObject:
    return cast("JsonObject", resource.block()["resource"])


def _bad_resource(uri: str, problem: str) -> HoldfastError:
    return HoldfastError(codes.BAD_TOOL, f"The resource {uri!r} cannot be added: {problem}.")
