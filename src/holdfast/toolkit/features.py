"""The resources, prompts and completions of a box. The modules that build and serve them are imported only if the box has any."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from holdfast.model import codes
from holdfast.model.context import META_KEY
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject

if TYPE_CHECKING:
    from holdfast.toolkit.completion import Completer
    from holdfast.toolkit.feature_handler import BoxContext
    from holdfast.toolkit.prompt import PromptOptions, ServedPrompt
    from holdfast.toolkit.resource import ResourceOptions, ServedResource
    from holdfast.toolkit.tool import Tool


class Features:
    """The resources, prompts and completions of one box, each checked when it is added."""

    def __init__(self) -> None:
        self.resources: dict[str, ServedResource] = {}
        """By URI or URI template."""
        self.prompts: dict[str, ServedPrompt] = {}
        self.completers: dict[tuple[str, str], Completer] = {}
        """By the URI template of the resource or the name of the prompt, and the name of the argument."""

    def add_resource(
        self, uri: str, handler: Callable[..., Any], options: "ResourceOptions", box: "BoxContext"
    ) -> None:
        """Add a resource; raises BAD_TOOL when it is not valid or its URI is taken."""
        from holdfast.toolkit.resource import build_resource

        served = build_resource(uri, handler, options, box)
        if uri in self.resources:
            raise HoldfastError(codes.BAD_TOOL, f"There are two resources with the URI {uri!r}.")
        self.resources[uri] = served

    def add_prompt(self, handler: Callable[..., Any], options: "PromptOptions", box: "BoxContext") -> None:
        """Add a prompt; raises BAD_TOOL when it is not valid or its name is taken."""
        from holdfast.toolkit.prompt import build_prompt

        served = build_prompt(handler, options, box)
        if served.name in self.prompts:
            raise HoldfastError(codes.BAD_TOOL, f"There are two prompts with the name {served.name!r}.")
        self.prompts[served.name] = served

    def add_completer(
        self, target: str, argument: str, handler: Callable[..., Any], box: "BoxContext"
    ) -> None:
        """Add a completion; raises BAD_TOOL when there is no such argument or it has a completion already."""
        from holdfast.toolkit.completion import build_completer

        found = self.prompts.get(target) or self.resources.get(target)
        if found is None:
            raise HoldfastError(
                codes.BAD_TOOL,
                f"There is no prompt or resource template {target!r} to complete. Add it before its completions.",
            )
        if argument not in found.tool.signature.arguments.parameters:
            raise HoldfastError(codes.BAD_TOOL, f"{target!r} has no argument {argument!r} to complete.")
        if (target, argument) in self.completers:
            raise HoldfastError(codes.BAD_TOOL, f"{argument!r} of {target!r} has two completions.")
        self.completers[target, argument] = build_completer(target, argument, handler, box)

    def remove_completers(self, target: str) -> None:
        """Remove the completions of a prompt or a resource template."""
        for key in [key for key in self.completers if key[0] == target]:
            del self.completers[key]

    def include(self, other: "Features", prefix: str, box: "BoxContext") -> None:
        """Add the features of another box: prompts as `<prefix>_<prompt>`, resources with their own URIs."""
        for uri, resource in other.resources.items():
            self.add_resource(uri, resource.handler, resource.options, _context_for(resource, box))
        for name, prompt in other.prompts.items():
            options = cast("PromptOptions", {**prompt.options, "name": f"{prefix}_{name}"})
            self.add_prompt(prompt.handler, options, _context_for(prompt, box))
        for (target, argument), completer in other.completers.items():
            name = f"{prefix}_{target}" if target in other.prompts else target
            self.add_completer(name, argument, completer.handler, _context_for(completer, box))

    def copy(self) -> "Features":
        copied = Features()
        copied.resources |= self.resources
        copied.prompts |= self.prompts
        copied.completers |= self.completers
        return copied

    def restore(self, earlier: "Features") -> None:
        """Undo what was added since `earlier` was copied."""
        for now, before in (
            (self.resources, earlier.resources),
            (self.prompts, earlier.prompts),
            (self.completers, earlier.completers),
        ):
            cast("dict[Any, Any]", now).clear()
            cast("dict[Any, Any]", now).update(before)

    def capabilities(self, *, is_dynamic: bool) -> JsonObject:
        """The capabilities of a server with these features. If the box is dynamic, it may get any of them later."""
        changed: JsonObject = {"listChanged": True} if is_dynamic else {}
        capabilities: JsonObject = {"tools": changed, "logging": {}}
        if self.resources or is_dynamic:
            capabilities["resources"] = {"subscribe": True, **changed}
        if self.prompts or is_dynamic:
            capabilities["prompts"] = changed
        if self.prompts or any(resource.is_template for resource in self.resources.values()) or is_dynamic:
            capabilities["completions"] = {}
        capabilities["extensions"] = {META_KEY: {}}
        return capabilities

    def tools(self) -> "list[Tool]":
        """The handlers of all features, in the form of tools."""
        features = (*self.resources.values(), *self.prompts.values(), *self.completers.values())
        return [feature.tool for feature in features]

    def manifest(self) -> dict[str, Any]:
        """Describe every resource, template and prompt with its error codes. A kind that the box does not have is left out."""
        described: dict[str, Any] = {}
        for key, served in (
            ("resources", [each for each in self.resources.values() if not each.is_template]),
            ("resource_templates", [each for each in self.resources.values() if each.is_template]),
            ("prompts", list(self.prompts.values())),
        ):
            if served:
                described[key] = [
                    {**each.listing(), "codes": [code.name for code in each.tool.codes]}
                    for each in sorted(served, key=lambda each: each.tool.name)
                ]
        return described


def _context_for(feature: "ServedResource | ServedPrompt | Completer", box: "BoxContext") -> "BoxContext":
    """The context, but with the lifespan of the box that the feature was first added to, if that box has one."""
    return replace(box, lifespan=feature.tool.definition.lifespan or box.lifespan)
