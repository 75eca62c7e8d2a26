"""`python -m holdfast.testing.scripted_model SCRIPT`: serve a script until the command is ended."""

import argparse
import asyncio
import sys
from importlib import import_module
from pathlib import Path

import msgspec

from holdfast.testing.scripted_model.server import Script, ScriptedModel
from holdfast.testing.scripted_model.steps import Step


def main() -> None:
    """Serve a script, and print the base URL for OpenAI's formats."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.scripted_model",
        description="Answer model requests from a script. Prints the base URL for OpenAI's formats; "
        "Anthropic's clients expect it without /v1.",
    )
    parser.add_argument(
        "script", help="a JSON file with a list of steps, or `module:name` of a list or a function"
    )
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; by default, any free one")
    arguments = parser.parse_args()
    try:
        script = _load(arguments.script)
    except (OSError, ImportError, AttributeError, msgspec.MsgspecError) as error:
        parser.error(f"Could not read the script {arguments.script!r}: {error}")
    asyncio.run(_serve(script, arguments.port))


async def _serve(script: Script, port: int) -> None:
    async with ScriptedModel(script, port=port) as endpoint:
        sys.stdout.write(f"{endpoint.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _load(name: str) -> Script:
    module, colon, attribute = name.partition(":")
    if colon and not Path(name).exists():
        return getattr(import_module(module), attribute)
    return msgspec.json.decode(Path(name).read_bytes(), type=list[Step])


if __name__ == "__main__":
    main()
