"""The definitions of agents that limit a session are stored with it by name, and apply again when it is resumed."""

from dataclasses import replace

from holdfast.host.agent_definitions import AgentDefinitions
from holdfast.host.open_options import OpenOptions, narrow_options
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.store.types import StoredSession

_OWN, _LIMITING = "agent", "limiting_agents"


def agents_to_store(options: OpenOptions) -> JsonObject:
    """The names of the definitions, to be stored with the session."""
    stored: JsonObject = {}
    if options.definition is not None:
        stored[_OWN] = options.definition.name
    if options.limiting_definitions:
        stored[_LIMITING] = [*dict.fromkeys(definition.name for definition in options.limiting_definitions)]
    return stored


def missing_agents(settings: JsonObject, options: OpenOptions) -> tuple[str, ...]:
    """The names of the stored definitions whose limits are not in the options."""
    given = {definition.name for definition in options.limiting_definitions}
    return tuple(name for name in _names(settings) if name not in given)


async def resume_options(
    options: OpenOptions, session: StoredSession, definitions: AgentDefinitions
) -> OpenOptions:
    """The options of resuming a session, with the limits of all definitions that it had. The same agent answers by default.

    Raise if a definition can no longer be used: without it, the session would get more rights than it had.
    """
    settings = session.settings
    kept = str(settings.get(_OWN, ""))
    own = options.agent_name or kept
    if own == kept and not options.model:
        options = replace(options, model=str(settings.get("model", "")))
    stored = _names(settings)
    for name in dict.fromkeys(filter(None, (*stored, own))):
        try:
            definition = await definitions.require(name, session.context.cwd)
        except HoldfastError as error:
            if name not in stored:
                raise
            raise HoldfastError(
                error.code,
                f"The session was started with the agent {name!r}, which limits what it may use, so it is not resumed without"
                f" that agent. {error.message}",
                hint="Restore or approve the agent's definition, then resume the session; or start a new session.",
            ) from None
        options = narrow_options(options, definition, is_own=name == own)
    return replace(options, agent_name=own)


def _names(settings: JsonObject) -> tuple[str, ...]:
    names = settings.get(_LIMITING, [])
    listed = names if isinstance(names, list) else [names]
    return tuple(dict.fromkeys(filter(None, map(str, (*listed, settings.get(_OWN, ""))))))
