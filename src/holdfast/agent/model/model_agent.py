"""The default agent of a session: it runs slash commands, and lets the model, if there is one, answer all other prompts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agent.agent import TurnContext
from holdfast.agent.command_list import COMMANDS
from holdfast.agent.model import failures
from holdfast.agent.model.config import ModelConfig, make_config
from holdfast.agent.model.instructions import make_instructions
from holdfast.agent.model.usage import Usage, describe_usage, sum_usage
from holdfast.agent.parse_commands import is_command
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.masking.likely_secrets import mask_listing
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.worker_threads import WorkerThreads
from holdfast.settings import ModelSettings
from holdfast.tracing import Tracer

if TYPE_CHECKING:
    from holdfast.agent.model.clients import ModelClients
    from holdfast.agent.model.history import History

_MAX_NAME = 200
_SUB_AGENT_INSTRUCTIONS = (
    "You are a sub-agent: your task, the first message, is from another agent, not from the user. Do it; it grants no permission. "
    "Your last message is its result. Do not ask questions: they are not answered."
)
_IMPORT_THREAD = WorkerThreads("model-import", threads=1)


@dataclass(slots=True)
class Models:
    """The models of a host: their settings, and the clients that connect to them. The first prompt makes the clients."""

    settings: ModelSettings
    tracer: Tracer | None = None
    """Traces the requests; None if tracing is off."""
    file: Path | None = None
    """The settings file; None if no file was read."""
    _file_version: tuple[int, ...] | None = None
    _clients: "ModelClients | None" = None
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._file_version = _version_of(self.file)

    def explain_change(self) -> str:
        """If the settings file has changed since it was read, return a sentence that says so and what to do; else an empty string."""
        if self.file is None or _version_of(self.file) == self._file_version:
            return ""
        return (
            f" '{self.file}' has changed since this process started: start it again to use the new settings."
        )

    async def clients(self, config: ModelConfig) -> "ModelClients":
        """Return the clients of all models used so far and of this one. If the client of this one cannot be made, raise an error that says what to set.

        pydantic-ai and the library of the model's provider are imported in a thread, so that the event loop does not wait.
        """
        async with self._loading:
            if self._clients is None:
                make_clients = await _IMPORT_THREAD.run(_import_clients)
                self._clients = make_clients(self.tracer)
            if not self._clients.has(config):
                await _IMPORT_THREAD.run(self._clients.get, config)
            return self._clients

    async def close(self) -> None:
        if self._clients is not None:
            await self._clients.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the configured models."""
        return tuple(dict.fromkeys(filter(None, (self.settings.name, *self.settings.also))))


class ModelAgent:
    """Answers the prompts of one session with a model. If the session has no model, the answer is the list of slash commands."""

    commands = COMMANDS

    def __init__(self, models: Models, name: str = "") -> None:
        self._models = models
        self.chosen_model = name
        """The session's model; empty if it has none."""
        self._slash_commands = SlashCommandAgent(
            {"/model": self._model_command, "/usage": self._usage_command},
            has_model=lambda: bool(self.chosen_model),
        )
        self._history: History | None = None
        """The conversation so far; None if it must be loaded from the store."""
        self._cost: float | None = None
        """What the session has cost so far; None if it must be computed from the store."""
        self.how_to_choose = ""
        """How an application chooses a model, for messages, such as "`model=` in Python". Empty if the user chooses it with `/model`."""

    @property
    def model_choices(self) -> tuple[str, ...]:
        """The models that the user can choose from."""
        return tuple(dict.fromkeys(filter(None, (self.chosen_model, *self._models.names))))

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        """Run the slash commands of a prompt of the user, or let the model answer the prompt."""
        try:
            return await self._run_turn(blocks, turn)
        except HoldfastError as error:
            if self.how_to_choose:  # in an application, which has no slash commands
                failures.change_advice(error, self.how_to_choose)
            if error.code is codes.MODEL_UNAVAILABLE and (change := self._models.explain_change()):
                raise HoldfastError(error.code, f"{error.message}{change}") from error
            raise

    async def _run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        is_from_user = not turn.sender and not turn.origin.agent
        if (is_from_user and is_command(blocks)) or not self.chosen_model:
            return await self._slash_commands.run_turn(blocks, turn)
        definition = turn.definition
        # A sub-agent uses the model of its definition. The session's own agent got its model when the session was opened, and the user
        # may have chosen another one since.
        sub_agent_model = definition.model if definition is not None and turn.origin.agent else ""
        config = self._config(sub_agent_model or self.chosen_model)
        # Made before the time is counted, because making a client may import libraries.
        clients = await self._models.clients(config)
        if turn.origin.agent:  # the session limits the sub-agent's time
            return await self._run_sub_agent(blocks, turn, config)
        async with turn.budget.limit_time():
            return await self._answer(blocks, turn, config, clients)

    async def _answer(
        self, blocks: Sequence[JsonObject], turn: TurnContext, config: ModelConfig, clients: "ModelClients"
    ) -> StopReason:
        from holdfast.agent.model.compaction import compact, compact_all, must_compact
        from holdfast.agent.model.history import load_history
        from holdfast.agent.model.run import ModelRun, RunOptions

        history, self._history = self._history, None
        if history is None:
            history = await load_history(turn.past_events(), config.limits.max_result_characters)
            # The prompt of this turn is stored already.
            history.forget_turn(turn.turn_id)
        instructions = make_instructions(
            turn.context,
            turn.server_status(),
            project=await turn.project_instructions(),
            own=turn.definition.instructions if turn.definition is not None else "",
        )
        options = RunOptions(
            model=config, instructions=instructions, budget=turn.budget, take_messages=turn.take_messages
        )
        await self._load_cost(turn)
        run = ModelRun(clients, turn, options, history.messages)
        size = config.limits.context_tokens
        earlier_usage = Usage()
        try:
            try:
                result = await run.run(blocks)
            except failures.ContextFullError:
                if run.has_answer:
                    raise failures.context_full_in_turn(config) from None
                if not history.messages:
                    raise
                earlier_usage = run.usage + await compact_all(clients, turn, options, history)
                run = ModelRun(clients, turn, options, history.messages)
                result = await run.run(blocks)
        finally:
            run.usage += earlier_usage
            cost = self._add_cost(run.usage.cost)
            turn.report_usage(_usage_report(run.usage, run.context_tokens, size, cost))
        if result.notice:
            await turn.reply(f"\n{result.notice}\n" if result.text else f"{result.notice}\n")
            return result.reason
        history.replace_messages(run.messages, turn.turn_id)
        if must_compact(run.context_tokens, config.limits):
            used = await compact(clients, turn, options, history)
            cost = self._add_cost(used.cost)
            turn.report_usage(_usage_report(run.usage + used, run.context_tokens, size, cost))
        self._history = history
        if result.reason is StopReason.REFUSAL and not result.text:
            await turn.reply(f"{config.name} refused to answer, without a reason.\n")
        is_empty = result.reason is StopReason.END_TURN and not result.text and not run.usage.calls
        if is_empty and not turn.sender:  # a message of another agent needs no answer
            raise failures.empty_answer(config)
        return result.reason

    async def _run_sub_agent(
        self, blocks: Sequence[JsonObject], turn: TurnContext, config: ModelConfig
    ) -> StopReason:
        """Do a task with a fresh history. Several sub-agents of a session run at the same time."""
        from holdfast.agent.model.run import ModelRun, RunOptions

        own = turn.definition.instructions if turn.definition is not None else ""
        status = turn.server_status()
        instructions = make_instructions(
            turn.context, status, own=f"{_SUB_AGENT_INSTRUCTIONS}\n\n{own}".strip()
        )
        options = RunOptions(model=config, instructions=instructions, budget=turn.budget)
        await self._load_cost(turn)
        run = ModelRun(await self._models.clients(config), turn, options)
        try:
            result = await run.run(blocks)
        finally:
            self._add_cost(run.usage.cost)
            turn.report_usage(run.unstored_usage.to_json())
        if result.notice:
            await turn.reply(f"\n{result.notice}\n")
        return result.reason

    async def _load_cost(self, turn: TurnContext) -> None:
        """Compute what the session has cost so far, unless that is known."""
        if self._cost is None:
            by_agent = await sum_usage(turn.past_events())
            if self._cost is None:  # another sub-agent may have computed it in between
                self._cost = sum(usage.cost for usage in by_agent.values())

    def _add_cost(self, cost: float) -> float:
        self._cost = (self._cost or 0.0) + cost
        return self._cost

    async def set_model(self, name: str) -> None:
        """Use another model from the next prompt on. If that model cannot be used, raise an error that says what to set."""
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"{name[:80]!r} is not the name of a model. Write provider:model."
            )
        await self._models.clients(self._config(name))
        self.chosen_model = name

    def _config(self, name: str) -> ModelConfig:
        return make_config(self._models.settings, name)

    async def _model_command(self, argument: str, turn: TurnContext) -> str:
        if not argument:
            current = (
                f"This session's model is {self.chosen_model}."
                if self.chosen_model
                else "This session has no model."
            )
            other_models = ", ".join(name for name in self.model_choices if name != self.chosen_model)
            more = f" Also configured: {other_models}." if other_models else ""
            change = self._models.explain_change()
            return (
                f"{current}{more} /model NAME changes it; in a shell, `holdfast model` lists models that you can use."
                f"{change}\n"
            )
        known = self.model_choices
        try:
            await self.set_model(argument.strip())
        except HoldfastError as error:
            return f"{error.message}{self._models.explain_change()}\n"
        await turn.keep_setting("model", self.chosen_model)
        text = f"This session's model is {self.chosen_model} from now on."
        if self._models.settings.base_url and self.chosen_model not in known:
            url = mask_listing(self._models.settings.base_url)
            text += f" It was not checked: the next prompt shows whether {url} has it."
        return f"{text}\n"

    async def _usage_command(self, argument: str, turn: TurnContext) -> str:
        del argument
        lines = describe_usage(await sum_usage(turn.past_events()))
        return (
            "".join(f"{agent}: {used}\n" for agent, used in lines) or "No model was used in this session.\n"
        )


def _version_of(file: Path | None) -> tuple[int, ...] | None:
    try:
        status = None if file is None else file.stat()
    except OSError:
        status = None
    return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)


def _usage_report(usage: Usage, used: int, size: int, cost: float) -> JsonObject:
    """Describe what a turn used, and how full the model's context is (`used` of `size` tokens).

    If no answer has reported how full it is, `used` is 0 and is left out, because the context is not empty.
    """
    described = {**usage.to_json(), **({"used": used, "size": size} if used else {})}
    return {**described, "cost": {"amount": round(cost, 6), "currency": "USD"}} if cost else described


def _import_clients() -> "type[ModelClients]":
    try:
        from importlib import import_module

        # `compaction` imports everything that the first prompt needs.
        import_module("holdfast.agent.model.compaction")
        from holdfast.agent.model.clients import ModelClients
    except ImportError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        raise HoldfastError(codes.NO_MODEL, failures.INSTALL) from None
    return ModelClients
