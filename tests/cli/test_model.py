"""`holdfast model`: a model is set once it has answered."""

import json
import socket
import subprocess
import threading
import time
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.agent.model.config import ModelConfig, ModelLimits
from holdfast.agent.model.find_models import find_by_keys, find_in_ollama
from holdfast.cli.model import pick
from holdfast.model.errors import HoldfastError
from holdfast.settings.edit import set_values
from holdfast.testing.scripted_model import Call, Fail, Hang, ModelRequest, ScriptedModel, Step, answer
from tests.commands import run_holdfast
from tests.journeys.editor import environment


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in environment(home).items() if not name.endswith("_API_KEY")}
    return run_holdfast("model", *arguments, env={**inherited, **more})


@pytest.mark.slow
def test_a_model_that_answers_is_set_and_one_that_does_not_changes_nothing(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text(
        '[log]\nlevel = "warning"\n\n[model]\nname = "old"\nmax_calls = 7\n\n[sessions]\nkeep_days = 3\n'
    )
    with ScriptedModel([Fail(status=401), answer("ready")]) as endpoint:
        arguments = ("openai-chat:qwen3", "--base-url", endpoint.base_url)
        refused, unchanged = run(tmp_path, *arguments), tomllib.loads(file.read_text())
        accepted = run(tmp_path, *arguments)
        base_url = endpoint.base_url

    assert refused.returncode == 1
    assert "needs a key (HTTP 401)" in refused.stderr
    assert "/model" not in refused.stderr, "a shell has no slash commands"
    assert unchanged["model"]["name"] == "old"
    assert accepted.stdout == f"New sessions use openai-chat:qwen3, as set in {file}.\n"
    assert tomllib.loads(file.read_text()) == {
        "log": {"level": "warning"},
        "model": {"name": "openai-chat:qwen3", "base_url": base_url, "max_calls": 7},
        "sessions": {"keep_days": 3},
    }


def test_another_model_does_not_get_the_endpoint_and_the_key_of_the_earlier_one(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('[model]\nname = "qwen3"\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "MY_KEY"\n')

    done = run(tmp_path, "anthropic:claude-sonnet-5", "--no-try")

    assert tomllib.loads(file.read_text())["model"] == {"name": "anthropic:claude-sonnet-5"}
    assert "Removed model.base_url, which was http://127.0.0.1:1/v1" in done.stdout
    assert "Removed model.api_key_env, which was MY_KEY" in done.stdout


@pytest.mark.parametrize("answer", ["0", "3", "99999999999"])
def test_a_number_that_is_not_in_the_list_is_not_the_name_of_a_model(answer: str):
    with pytest.raises(HoldfastError, match="Nothing was changed"):
        pick(answer, ["a:b", "c:d"])

    assert [pick(given, ["a:b", "c:d"]) for given in ("2", "x:y", "")] == ["c:d", "x:y", ""]


def test_a_provider_with_two_keys_is_found_once():
    found = find_by_keys({"GOOGLE_API_KEY": "a", "GEMINI_API_KEY": "b", "OPENAI_API_KEY": "c"})

    assert [model.reason for model in found] == ["OPENAI_API_KEY is set", "GOOGLE_API_KEY is set"]


@pytest.mark.anyio
async def test_a_trial_that_takes_too_long_says_how_long_it_took(monkeypatch: pytest.MonkeyPatch):
    from holdfast.agent.model import try_model  # imports the libraries of the models

    with ScriptedModel([answer("ready"), Hang()]) as endpoint:
        config = ModelConfig(name="openai-chat:qwen3", base_url=endpoint.base_url)
        await try_model.try_model(config)  # the second one connects at once: all libraries are imported
        monkeypatch.setattr(try_model, "_TIMEOUT_SECONDS", 0.3)
        with pytest.raises(
            HoldfastError, match=r"did not finish its answer to one short prompt within 0\.3 s"
        ):
            await try_model.try_model(config)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_trial_may_take_longer_than_an_answer_may_make_no_progress():
    from holdfast.agent.model.try_model import try_model

    words = answer(*("ready " for _ in range(16)))
    with ScriptedModel([answer("ready"), replace(words, pause=0.2), replace(words, pause=5)]) as endpoint:
        config = ModelConfig(
            name="openai-chat:qwen3", base_url=endpoint.base_url, limits=ModelLimits(idle_seconds=2)
        )
        await try_model(config)  # the next one connects at once: all libraries are imported
        started = time.monotonic()
        said = await try_model(config)
        took = time.monotonic() - started
        with pytest.raises(HoldfastError, match="made no progress for 2 s"):
            await try_model(config)

    assert (said.split(), took > 2) == (["ready"] * 16, True)


def test_without_a_name_it_lists_what_this_machine_can_use(tmp_path: Path):
    nothing, found = run(tmp_path), run(tmp_path, ANTHROPIC_API_KEY="x")

    assert nothing.stdout.startswith("Model: none. You call the tools yourself.\n")
    assert "anthropic:claude-sonnet-5" in found.stdout
    assert found.stdout.endswith("To set one: holdfast model NAME\n")


def test_the_models_of_a_local_ollama_are_found():
    with ScriptedModel([], models=("qwen3", "bad\nname")) as endpoint:
        found = find_in_ollama(endpoint.address)
        nothing = find_in_ollama(f"{endpoint.address}/elsewhere")

    assert [(model.name, model.reason) for model in found] == [
        ("ollama:qwen3", f"Ollama runs at {endpoint.address}")
    ]
    assert nothing == []


def test_a_program_at_the_port_of_ollama_that_does_not_speak_http_is_ignored():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 ready\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        found = find_in_ollama(f"http://127.0.0.1:{listener.getsockname()[1]}")
        answering.join()

    assert found == []


def test_a_settings_file_is_made_if_there_is_none(tmp_path: Path):
    file = tmp_path / "new" / "config.toml"
    set_values(file, "model", {"name": 'a"b', "base_url": ""})

    assert tomllib.loads(file.read_text()) == {"model": {"name": 'a"b'}}


def test_a_file_that_cannot_be_changed_stays_as_it_is_and_the_error_names_it(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('model.name = "old"\n')

    with pytest.raises(HoldfastError) as raised:
        set_values(file, "model", {"name": "new"})

    assert raised.value.message.startswith(
        f"{file} was not changed, because the result would be invalid. {file}: "
    )
    assert [path.read_text() for path in tmp_path.iterdir()] == ['model.name = "old"\n']


def test_a_settings_file_that_is_a_link_stays_a_link(tmp_path: Path):
    file, target = tmp_path / "config.toml", tmp_path / "dotfiles.toml"
    target.write_text("[log]\n")
    file.symlink_to(target)

    set_values(file, "model", {"name": "new"})

    assert file.is_symlink()
    assert tomllib.loads(target.read_text()) == {"log": {}, "model": {"name": "new"}}


@pytest.mark.slow
@pytest.mark.promise("AGT-12", "AGT-13")
def test_chat_uses_the_agent_and_the_model_of_its_options_and_the_usage_is_shown(tmp_path: Path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reader.md").write_text(
        "---\nmodel: openai-chat:second\ntools: [files.list]\n---\nYou only read.\n"
    )
    (tmp_path / "project").mkdir()

    def respond(request: ModelRequest) -> Step:
        return answer("One file.") if request.tool_results else answer(Call("files__list", {"path": "."}))

    with ScriptedModel(respond) as endpoint:
        environ = {
            **environment(tmp_path),
            "HOLDFAST_MODEL_NAME": "openai-chat:first",
            "HOLDFAST_MODEL_ALSO": "openai-chat:second",
            "HOLDFAST_MODEL_BASE_URL": endpoint.base_url,
        }
        options = ("--agent", "reader", "--model", "openai-chat:third")
        chat = run_holdfast(
            "chat", *options, input="What is here?\n/usage\n", cwd=tmp_path / "project", env=environ
        )
        session = json.loads(run_holdfast("sessions", "list", "--json", env=environ).stdout)["id"]
        shown = run_holdfast("sessions", "show", session, env=environ)

    usage = "200 tokens in, 40 out, 2 requests, 1 call"
    assert chat.returncode == 0, chat.stderr
    assert ("One file." in chat.stdout, usage in chat.stdout) == (True, True)
    assert [(request.model, request.tools) for request in endpoint.requests] == [
        ("third", ("files__list",))
    ] * 2
    assert "You only read." in endpoint.requests[0].instructions
    assert usage in shown.stdout


@pytest.mark.slow
def test_resume_continues_the_session_of_the_user_and_not_one_that_its_agent_created(tmp_path: Path):
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()

    def respond(request: ModelRequest) -> Step:
        if "Create one" in request.prompt and not request.tool_results:
            return answer(Call("team__create_session", {"title": "child", "initial_message": "Hello"}))
        return answer("Done.")

    with ScriptedModel(respond) as endpoint:
        environ = {
            **environment(home),
            "HOLDFAST_MODEL_NAME": "openai-chat:first",
            "HOLDFAST_MODEL_BASE_URL": endpoint.base_url,
        }
        run_holdfast("workspaces", "add", str(project), env=environ)
        run_holdfast("chat", "--mode", "auto", input="Create one\n", cwd=project, env=environ)
        resumed = run_holdfast("chat", "--resume", input="/usage\n", cwd=project, env=environ)
        listed = run_holdfast("sessions", "list", "--json", env=environ).stdout.splitlines()

    assert {json.loads(line)["title"] for line in listed} == {"Create one", "child"}
    assert "Resuming 'Create one'." in resumed.stderr
