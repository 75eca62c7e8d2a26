"""Sessions whose model is a scripted endpoint."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast import Host, Session, settings
from holdfast.events import Event, Replied, Thought
from holdfast.host.open_options import SessionOptions
from holdfast.model.json import JsonObject
from holdfast.settings import Settings
from holdfast.testing.scripted_model import Script, ScriptedModel
from tests.agent.model.provider_rules import broken_rules

NOTHING: Mapping[str, object] = {}
PREFIXES = ("openai-chat", "openai", "anthropic")
"""The prefixes of the models' names in the three formats."""


def text(words: str) -> list[JsonObject]:
    return [{"type": "text", "text": words}]


def model_settings(
    folder: Path, endpoint: ScriptedModel, prefix: str = "openai-chat", more: Mapping[str, object] = NOTHING
) -> Settings:
    loaded = settings.load(environ={})
    model = replace(loaded.model, **{"name": f"{prefix}:gpt-5", "base_url": endpoint.base_url, **more})
    return replace(loaded, data_dir=folder / "data", file=folder / "config.toml", model=model)


@dataclass
class Conversation:
    """An open session, its host and its endpoint."""

    host: Host
    session: Session
    endpoint: ScriptedModel

    async def events(self) -> list[Event]:
        await self.session.record.flush()
        return [stored.event async for stored in self.host.store.events(self.session.context.session_id)]

    async def replies(self) -> str:
        return "".join(event.text for event in await self.events() if isinstance(event, Replied))

    async def thoughts(self) -> str:
        return "".join(event.text for event in await self.events() if isinstance(event, Thought))


@asynccontextmanager
async def conversation(
    folder: Path,
    script: Script,
    prefix: str = "openai-chat",
    options: SessionOptions | None = None,
    model: Mapping[str, object] = NOTHING,
) -> AsyncIterator[Conversation]:
    """A session in `folder/project`, with the model of the script. No provider would reject one of its requests."""
    project = folder / "project"
    project.mkdir(exist_ok=True, parents=True)
    async with ScriptedModel(script) as endpoint:
        configured = model_settings(folder, endpoint, prefix, model)
        async with (
            Host(settings=configured) as host,
            host.session(**{"cwd": project, **(options or {})}) as session,
        ):
            yield Conversation(host, session, endpoint)
        assert [broken_rules(request) for request in endpoint.requests if request.is_streamed] == [
            [] for request in endpoint.requests if request.is_streamed
        ]
