"""A review team: one agent gives a small repository to three reviewers at once, and writes down what they found.

    python examples/review_team/run.py

It needs no key and no network: a scripted endpoint plays the model, over real HTTP. To use a model of your own, write its name into `config` in
`main`, and its address as `base_url` only if it is an endpoint of your own.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

from holdfast import Host, settings
from holdfast.events import Replied, ToolCalled
from holdfast.testing.scripted_model import Answer, Call, ModelRequest, ScriptedModel, answer

HERE = Path(__file__).parent
REVIEWERS = ("security", "style", "tests")
PROMPT = f"Let the agents {', '.join(REVIEWERS)} review app.py at once. Write what they find to REVIEW.md."
PROGRAM = """\
import os

def run(x):
    os.system("convert " + x)
"""
FINDINGS = {
    "security": "app.py:4 passes its argument to a shell: a file name can run commands.",
    "style": "app.py:3 `x` says nothing; call it `path`.",
    "tests": "Nothing tests `run`.",
}


def play_model(request: ModelRequest) -> Answer:
    """What the model answers. A reviewer reads the program, then reports; the lead asks all reviewers, then writes the review."""
    for name in REVIEWERS:
        if f"You review the {name}" in request.instructions:
            if not request.tool_results:
                return answer(Call("files__read", {"path": "app.py"}))
            return answer(FINDINGS[name])
    match len(request.tool_results):
        case 0:
            tasks = (
                Call("agents__delegate", {"task": "Review app.py.", "agent": name}) for name in REVIEWERS
            )
            return answer("I ask three reviewers.", *tasks)
        case 3:
            review = "".join(f"- {name}: {finding}\n" for name, finding in FINDINGS.items())
            return answer(Call("files__write", {"path": "REVIEW.md", "text": review}))
        case _:
            return answer("The review is in REVIEW.md.")


async def main() -> None:
    """Review a small repository in a temporary folder."""
    with tempfile.TemporaryDirectory() as scratch:
        home, repository = Path(scratch, "home"), Path(scratch, "repository")
        repository.mkdir()
        (repository / "app.py").write_text(PROGRAM)
        shutil.copytree(HERE / "agents", home / "agents")
        async with ScriptedModel(play_model) as endpoint:
            config = home / "config.toml"
            config.write_text(f'[model]\nname = "openai-chat:scripted"\nbase_url = "{endpoint.base_url}"\n')
            loaded = settings.load(config, {"HOLDFAST_DATA_DIR": str(home / "data")})
            async with (
                Host(settings=loaded) as host,
                host.session(cwd=repository, tools=["files.*", "agents.delegate"]) as session,
            ):
                await session.prompt(PROMPT)
                messages: dict[str, str] = {}
                async for stored in host.store.events(session.context.session_id):
                    who = stored.agent or "lead"
                    match stored.event:
                        case ToolCalled(server=server, tool=tool):
                            print(f"{who} calls {server}.{tool}")
                        case Replied(message_id=message_id, text=text):
                            messages[message_id] = messages.get(message_id, f"{who}: ") + text
                        case _:
                            pass
                print(*messages.values(), sep="\n")
        print((repository / "REVIEW.md").read_text())


if __name__ == "__main__":
    asyncio.run(main())
