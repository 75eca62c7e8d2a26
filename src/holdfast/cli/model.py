"""`holdfast model`: find, try and set the model that answers prompts."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from holdfast import settings
from holdfast.cli.output import ask, print_line, print_table
from holdfast.masking.likely_secrets import mask_listing
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_OPTIONS = {"model.base_url": "--base-url", "model.api_key_env": "--api-key-env", "model.name": "the name"}
"""What the messages of this command say instead of the name of a setting."""


@click.command()
@click.argument("name", required=False)
@click.option("--base-url", help="The address of an endpoint of your own, such as http://127.0.0.1:8080/v1.")
@click.option("--api-key-env", help="The environment variable with the endpoint's key.")
@click.option(
    "--try/--no-try", "try_first", default=True, help="Whether to try the model first. Default: --try."
)
def model(name: str | None, base_url: str | None, api_key_env: str | None, *, try_first: bool) -> None:
    """Find, try and set the model that answers prompts.

    Without NAME, shows the model that is set and those that this machine can use: the keys in the environment, and Ollama. At
    a terminal, you can choose one. With NAME, tries that model with one short request, and writes it to the settings file.
    The endpoint and the key's variable of the earlier model are removed, unless you give them again.

    \b
    Examples:
      holdfast model
      holdfast model anthropic:claude-sonnet-5
      holdfast model ollama:qwen3
      holdfast model openai-chat:qwen3 --base-url http://127.0.0.1:8080/v1
    """
    loaded = settings.load()
    chosen = name or _choose(loaded)
    if not chosen:
        return
    changed = replace(
        loaded.model,
        name=chosen,
        base_url=base_url or "",
        api_key_env=api_key_env or "",
    )
    if changed.base_url:
        from holdfast.agent.model.failures import check_base_url

        check_base_url(changed.base_url, "--base-url")
    if try_first:
        print_line(f"Trying {chosen} …", err=True)
        asyncio.run(_try(changed))
    from holdfast.settings.edit import set_values

    set_values(
        loaded.file,
        "model",
        {"name": chosen, "base_url": changed.base_url, "api_key_env": changed.api_key_env},
    )
    print_line(f"New sessions use {chosen}, as set in {loaded.file}.")
    for option, earlier, now in (
        ("base_url", loaded.model.base_url, changed.base_url),
        ("api_key_env", loaded.model.api_key_env, changed.api_key_env),
    ):
        if earlier and not now:
            print_line(
                f"Removed model.{option}, which was {mask_listing(earlier)}: it belonged to the earlier model. To use it for the new model as well,"
                f" give it again with --{option.replace('_', '-')}."
            )
    if os.environ.get("HOLDFAST_MODEL_NAME"):
        print_line("HOLDFAST_MODEL_NAME is set in the environment, and overrides this setting.", err=True)


def _choose(loaded: settings.Settings) -> str:
    """Print the model that is set and those that were found. At a terminal, let the user choose one."""
    from holdfast.agent.model.find_models import find_by_keys, find_in_ollama

    current = loaded.model
    where = f" at {mask_listing(current.base_url)}" if current.base_url else ""
    print_line(
        f"Model: {current.name}{where}" if current.name else "Model: none. You call the tools yourself."
    )
    found = [*find_by_keys(os.environ), *find_in_ollama()]
    if not found:
        print_line(
            "No provider's key is in the environment, and Ollama is not running on this machine. Set a key, such as"
            " ANTHROPIC_API_KEY, or give the address of your own endpoint: holdfast model NAME --base-url URL"
        )
        return ""
    print_table(
        ("", "model", "found"),
        [(str(number), each.name, each.reason) for number, each in enumerate(found, start=1)],
    )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print_line("To set one: holdfast model NAME")
        return ""
    answer = ask("Which one? A number, another name, or Enter to change nothing:").strip()
    return pick(answer, [each.name for each in found])


def pick(answer: str, names: Sequence[str]) -> str:
    """The chosen model. The answer is its number in the list, or a name."""
    if not answer.isdecimal():
        return answer
    if len(answer) > 4 or not 0 < int(answer) <= len(names):  # int() raises for thousands of digits
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{answer[:20]} is not in the list, which has the numbers 1 to {len(names)}. Nothing was changed.",
        )
    return names[int(answer) - 1]


async def _try(changed: settings.ModelSettings) -> None:
    from holdfast.agent.model import failures
    from holdfast.agent.model.config import make_config

    try:
        from holdfast.agent.model.try_model import try_model
    except ImportError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        raise HoldfastError(codes.NO_MODEL, failures.INSTALL) from None
    try:
        await try_model(make_config(changed))
    except HoldfastError as error:
        failures.change_advice(error, "`holdfast model NAME`")
        message = error.message
        for setting, option in _OPTIONS.items():
            message = message.replace(setting, option)
        raise HoldfastError(
            error.code,
            message,
            hint="The settings were not changed. To set the model without trying it, add --no-try.",
        ) from error
