"""`holdfast model`: a model is set once it has answered."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from holdfast.agent.model.config import ModelConfig
from holdfast.cli.model import pick
from holdfast.model.errors import HoldfastError
from holdfast.settings.edit import set_values
from holdfast.testing.scripted_model import Fail, Hang, ScriptedModel, answer
from tests.commands import run_holdfast
from tests.journeys.editor import environment


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in environment(home).items() if not name.endswith("_API_KEY")}
    return run_holdfast("model", *arguments, env={**inherited, **more})


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


def test_without_a_name_it_lists_what_this_machine_can_use(tmp_path: Path):
    nothing, found = run(tmp_path), run(tmp_path, ANTHROPIC_API_KEY="x")

    assert nothing.stdout.startswith("Model: none. You call the tools yourself.\n")
    assert "anthropic:claude-sonnet-5" in found.stdout
    assert found.stdout.endswith("To set one: holdfast model NAME\n")


def test_a_settings_file_is_made_if_there_is_none(tmp_path: Path):
    file = tmp_path / "new" / "config.toml"
    set_values(file, "model", {"name": 'a"b', "base_url": ""})

    assert tomllib.loads(file.read_text()) == {"model": {"name": 'a"b'}}
