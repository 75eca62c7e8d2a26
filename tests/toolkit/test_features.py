"""Resources, templates, prompts and completion, with the guards, context, workspace and codes of tools."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.toolkit import (
    Call,
    Completion,
    Given,
    Image,
    Message,
    Observation,
    Resource,
    SessionContext,
    Toolbox,
    ToolError,
    Workspace,
    current_session,
    direct_only,
)
from holdfast.toolkit.authentication import AnonymousAuthenticator
from holdfast.wire.http import HttpApp
from holdfast.wire.messages import PeerError
from holdfast.workspaces import Registry
from tests.toolkit.clients import Era
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.http_memory_client import HttpMemoryClient
from tests.toolkit.memory_client import connect

pytestmark = [pytest.mark.anyio, pytest.mark.promise("KIT-23")]
ERAS: list[Era] = ["handshake", "modern"]


@dataclass(frozen=True)
class Order:
    id: int
    dish: str


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


def shop(workspaces: Registry | None = None) -> Toolbox:
    """A box with resources and prompts, but without tools."""
    box = Toolbox("shop", workspaces=workspaces)
    box.code("SOLD_OUT", http=409, hint="Order something else.", retryable=True)

    @box.resource("shop://menu", mime_type="text/markdown", title="Menu")
    async def menu() -> str:
        """What there is today."""
        return "# Soup"

    @box.resource("shop://logo", name="logo", size=3, meta={"x": 1})
    def logo() -> bytes:
        return b"png"

    @box.resource("shop://orders/{id}", codes=["SOLD_OUT"])
    async def order(id: int, call: Call) -> Order:
        """One order."""
        if id == 13:
            raise ToolError(box.code("UNLUCKY", http=400, hint="Avoid 13."), "No.")
        if id == 0:
            raise RuntimeError("a secret")
        return Order(id, call.uri)

    @box.resource("shop://secrets/{name}", guards=[direct_only])
    async def secret(name: str, session: SessionContext) -> str:
        current = current_session()
        assert current is not None
        return f"{name} of {session.session_id} {current.session_id}"

    @box.resource("shop://both{?kind}")
    async def both(kind: Literal["a", "b"] = "a") -> list[Resource]:
        return [Resource(uri="shop://1", content=kind), Resource(uri="shop://2", content=b"two")]

    @box.prompt
    async def greet(name: Annotated[str, "Whom?"], size: Size = Size.SMALL, loud: bool = False) -> str:
        """Greet someone."""
        return f"Hello {name} {size.value} {loud}"

    @box.prompt(title="Look", guards=[direct_only])
    def look(numbers: list[int], tax: Annotated[float, Given(lambda: 0.5)]) -> list[str | Image | Message]:
        """Look at a picture."""
        return [str(sum(numbers) * tax), Image(b"png"), Message("Sure.", "assistant")]

    @box.completion("greet", "name")
    async def names() -> list[str]:
        return ["Ann", "Anton", "Bob"]

    @box.completion("shop://secrets/{name}", "name")
    async def secret_names(value: str, arguments: dict[str, str], call: Call) -> Completion:
        return Completion(values=[f"{value} {sorted(arguments)}"], total=200, has_more=True)

    return box


@pytest.mark.parametrize("era", ERAS)
async def test_resources_templates_and_prompts_are_listed(era: Era):
    async with connect(shop(), era) as client:
        resources = (await client.request("resources/list"))["resources"]
        templates = (await client.request("resources/templates/list"))["resourceTemplates"]
        prompts = (await client.request("prompts/list"))["prompts"]

    assert resources == [
        {
            "uri": "shop://menu",
            "name": "menu",
            "title": "Menu",
            "description": "What there is today.",
            "mimeType": "text/markdown",
        },
        {"uri": "shop://logo", "name": "logo", "size": 3, "_meta": {"x": 1}},
    ]
    assert [(each["uriTemplate"], each["name"]) for each in templates] == [
        ("shop://orders/{id}", "order"),
        ("shop://secrets/{name}", "secret"),
        ("shop://both{?kind}", "both"),
    ]
    assert prompts == [
        {
            "name": "greet",
            "description": "Greet someone.",
            "arguments": [
                {"name": "name", "required": True, "description": "Whom?"},
                {"name": "size", "required": False},
                {"name": "loud", "required": False},
            ],
        },
        {
            "name": "look",
            "title": "Look",
            "description": "Look at a picture.",
            "arguments": [{"name": "numbers", "required": True}],
        },
    ]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("shop://menu", [{"uri": "shop://menu", "mimeType": "text/markdown", "text": "# Soup"}]),
        ("shop://logo", [{"uri": "shop://logo", "mimeType": "application/octet-stream", "blob": "cG5n"}]),
        (
            "shop://orders/7",
            [
                {
                    "uri": "shop://orders/7",
                    "mimeType": "application/json",
                    "text": '{"id":7,"dish":"shop://orders/7"}',
                }
            ],
        ),
        ("shop://both?kind=b", [{"uri": "shop://1", "text": "b"}, {"uri": "shop://2", "blob": "dHdv"}]),
    ],
)
async def test_resource_is_read(era: Era, uri: str, contents: Any):
    async with connect(shop(), era) as client:
        assert (await client.request("resources/read", {"uri": uri}))["contents"] == contents


@pytest.mark.parametrize("era", ERAS)
async def test_errors_of_resources_have_the_codes_of_tools(era: Era):
    box = shop()
    async with connect(box, era) as client:
        unknown = await client.error("resources/read", {"uri": "shop://nothing"})
        bad = await client.error("resources/read", {"uri": "shop://orders/x"})
        unlucky = await client.error("resources/read", {"uri": "shop://orders/13"})
        crashed = await client.error("resources/read", {"uri": "shop://orders/0"})
        denied = await client.error("resources/read", {"uri": "shop://secrets/key"}, session=BOB)

    assert unknown[0] == (-32602 if era == "modern" else -32002)
    assert (unknown[1]["code"], unknown[1]["uri"]) == ("UNKNOWN_RESOURCE", "shop://nothing")
    assert (bad[0], bad[1]["code"]) == (-32602, "BAD_ARGUMENT")
    assert bad[1]["details"]["issues"][0]["field"] == "id"
    assert unlucky == (
        -32603,
        {
            "code": "UNLUCKY",
            "hint": "Avoid 13.",
            "retryable": False,
            "http": 400,
            "uri": "shop://orders/13",
        },
    )
    assert (crashed[0], crashed[1]["code"], "secret" in str(crashed)) == (-32603, "INTERNAL_ERROR", False)
    assert denied[1]["code"] == "DENIED"


@pytest.mark.parametrize("era", ERAS)
async def test_refusal_over_http_is_an_answer_and_not_a_failed_request(era: Era):
    client = HttpMemoryClient(HttpApp(shop().server(AnonymousAuthenticator())))
    session = await client.open_session() if era == "handshake" else ""

    message = client.message("resources/read", {"uri": "shop://secrets/key"}, era=era)
    response = await client.send(message, session)

    assert (response.status, response.json["error"]["data"]["code"]) == (200, "DENIED")


@pytest.mark.parametrize("era", ERAS)
async def test_resource_and_prompt_know_their_session(era: Era):
    async with connect(shop(), era) as client:
        read = await client.request("resources/read", {"uri": "shop://secrets/key"}, session=ANN)
        allowed = await client.request(
            "prompts/get", {"name": "look", "arguments": {"numbers": "[1, 2]"}}, session=ANN
        )
        denied = await client.error("prompts/get", {"name": "look", "arguments": {"numbers": "[]"}})

    assert read["contents"][0]["text"] == f"key of {ANN.session_id} {ANN.session_id}"
    assert allowed["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "1.5"}},
        {"role": "user", "content": {"type": "image", "data": "cG5n", "mimeType": "image/png"}},
        {"role": "assistant", "content": {"type": "text", "text": "Sure."}},
    ]
    assert denied[1]["code"] == "DENIED"


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_of_prompts_are_texts_that_are_converted(era: Era):
    async with connect(shop(), era) as client:
        arguments = {"name": "7", "size": "large", "loud": "true"}
        found = await client.request("prompts/get", {"name": "greet", "arguments": arguments})
        missing = await client.error("prompts/get", {"name": "greet"})
        unknown = await client.error("prompts/get", {"name": "nothing"})

    assert found["description"] == "Greet someone."
    assert found["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello 7 large True"}}]
    assert (missing[1]["code"], unknown[0]) == ("BAD_ARGUMENT", -32602)


async def test_resource_has_the_workspace_of_its_session(tmp_path: Path):
    registry = Registry(tmp_path / "data" / "workspaces")
    for name in ("blog", "shop"):
        (tmp_path / name).mkdir()
        registry.add(tmp_path / name, name)
    box = Toolbox("files", workspaces=registry)

    @box.resource("files://{name}")
    async def own(name: str, workspace: Workspace) -> str:
        return f"{workspace.slug} {name}"

    @box.resource("files://in/{workspace}/{name}")
    async def other(name: str, workspace: Workspace) -> str:
        return f"{workspace.slug} {name}"

    @box.prompt
    async def about(workspace: Workspace, topic: str = "") -> str:
        return workspace.slug

    @box.completion("about", "topic")
    async def topics(workspace: Workspace) -> list[str]:
        return [workspace.slug]

    async with connect(box, "modern") as client:
        texts = [
            (await client.request("resources/read", {"uri": uri}, session=ANN))["contents"][0]["text"]
            for uri in ("files://a", "files://in/shop/a")
        ]
        denied = await client.error("resources/read", {"uri": "files://in/blog/a"}, session=BOB)
        missing = await client.error("resources/read", {"uri": "files://a"})
        prompt = await client.request("prompts/get", {"name": "about"}, session=ANN)
        completed = [
            (await client.request("completion/complete", params, session=ANN))["completion"]["values"]
            for params in (
                completing("about", "topic", ""),
                completing("about", "topic", "", workspace="shop"),
            )
        ]
        hidden = await client.error(
            "completion/complete", completing("about", "topic", "", workspace="blog"), session=BOB
        )

    assert texts == ["blog a", "shop a"]
    assert (denied[1]["code"], missing[1]["code"]) == ("WORKSPACE_DENIED", "MISSING_WORKSPACE")
    assert prompt["messages"][0]["content"]["text"] == "blog"
    assert (completed, hidden[1]["code"]) == ([["blog"], ["shop"]], "WORKSPACE_DENIED")


def ref(target: str) -> dict[str, str]:
    return (
        {"type": "ref/resource", "uri": target} if "://" in target else {"type": "ref/prompt", "name": target}
    )


def completing(target: str, name: str, value: str, **context: str) -> dict[str, Any]:
    return {
        "ref": ref(target),
        "argument": {"name": name, "value": value},
        "context": {"arguments": context},
    }


async def test_guards_know_the_workspace_of_completions_and_subscriptions(tmp_path: Path):
    seen: list[str] = []
    registry = Registry(tmp_path / "data" / "workspaces")
    for name in ("blog", "shop"):
        (tmp_path / name).mkdir()
        registry.add(tmp_path / name, name)
    box = Toolbox("files", workspaces=registry)

    def watch(call: Call) -> bool:
        seen.append(call.workspace.slug if call.workspace else "none")
        return True

    @box.resource("files://{workspace}/{name}", guards=[watch])
    async def file(name: str, workspace: Workspace) -> str:
        return name

    @box.resource("plain://{workspace}/{name}")
    async def plain(name: str, workspace: Workspace) -> str:
        return name

    async with connect(box, "handshake") as client:
        await client.request("resources/read", {"uri": "files://shop/a"}, session=ANN)
        await client.request("resources/subscribe", {"uri": "files://shop/a"}, session=ANN)
        params = completing("files://{workspace}/{name}", "name", "", workspace="shop")
        await client.request("completion/complete", params, session=ANN)
        denied = [
            (await client.error("resources/subscribe", {"uri": uri}, session=BOB))[1]["code"]
            for uri in ("files://blog/a", "plain://blog/a")
        ]

    assert (seen, denied) == (["shop"] * 3, ["WORKSPACE_DENIED"] * 2)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("params", "completion"),
    [
        (completing("greet", "name", "an"), {"values": ["Ann", "Anton"], "total": 2, "hasMore": False}),
        (completing("greet", "size", "l"), {"values": ["large"], "total": 1, "hasMore": False}),
        (completing("greet", "loud", ""), {"values": ["true", "false"], "total": 2, "hasMore": False}),
        (
            completing("shop://secrets/{name}", "name", "k", other="x"),
            {"values": ["k ['other']"], "total": 200, "hasMore": True},
        ),
        (completing("shop://orders/{id}", "id", "1"), {"values": [], "total": 0, "hasMore": False}),
    ],
)
async def test_completion(era: Era, params: dict[str, Any], completion: Any):
    async with connect(shop(), era) as client:
        found = await client.request("completion/complete", params, session=ANN)

    assert found["completion"] == completion


@pytest.mark.parametrize("era", ERAS)
async def test_completion_is_refused_to_those_who_may_not_read_the_resource(era: Era):
    async with connect(shop(), era) as client:
        denied = await client.error(
            "completion/complete", completing("shop://secrets/{name}", "name", ""), session=BOB
        )
        unknown = [
            await client.error("completion/complete", params)
            for params in (
                completing("nothing", "name", ""),
                completing("shop://{no}", "no", ""),
                completing("greet", "age", ""),
            )
        ]

    assert denied[1]["code"] == "DENIED"
    assert {code for code, _ in unknown} == {-32602}


@pytest.mark.parametrize(
    ("name", "values"), [("kind", ["a", "b"]), ("size", ["small", "large"]), ("loud", ["true", "false"])]
)
async def test_optional_choices_are_completed(name: str, values: list[str]):
    box = Toolbox("optional")

    @box.prompt
    async def greet(
        kind: Literal["a", "b"] | None = None, size: Size | None = None, loud: bool | None = None
    ) -> str:
        return f"{kind} {size} {loud}"

    async with connect(box, "modern") as client:
        found = await client.request("completion/complete", completing("greet", name, ""))

    assert found["completion"]["values"] == values


async def test_completion_sends_at_most_100_values():
    box = Toolbox("many")

    @box.prompt
    async def pick(number: str) -> str:
        return number

    @box.completion("pick", "number")
    def numbers() -> list[int]:
        return list(range(150))

    async with connect(box, "modern") as client:
        found = (await client.request("completion/complete", completing("pick", "number", "")))["completion"]

    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 150, True)


@pytest.mark.parametrize("era", ERAS)
async def test_capabilities_are_those_that_the_box_has(era: Era):
    async def declared(box: Toolbox) -> set[str]:
        async with connect(box, era) as client:
            return set((await client.initialize())["capabilities"])

    only_resource = Toolbox("one")
    only_resource.resource("one://it")(lambda: "it")

    assert await declared(Toolbox("none")) == {"tools", "logging", "extensions"}
    assert await declared(only_resource) == {"tools", "logging", "extensions", "resources"}
    assert await declared(shop()) == {
        *("tools", "logging", "extensions"),
        *("resources", "prompts", "completions"),
    }


async def test_requests_for_features_are_observed():
    seen: list[Observation] = []
    box = shop()
    box.observe(seen.append)

    async with connect(box, "modern") as client:
        await client.request("resources/read", {"uri": "shop://orders/7"}, session=ANN)
        await client.error("prompts/get", {"name": "look"}, session=BOB)

    assert [(each.tool, each.code, each.session) for each in seen] == [
        ("shop://orders/{id}", "OK", ANN),
        ("look", "BAD_ARGUMENT", BOB),
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_resources_and_prompts_can_ask_the_user(era: Era):
    box = Toolbox("asking")

    @box.resource("ask://it")
    async def resource(call: Call) -> str:
        return await call.ask("Which?", str)

    @box.prompt
    async def prompt(call: Call) -> str:
        return await call.ask("Which?", str)

    def answer(method: str, params: Any) -> Any:
        return {"action": "accept", "content": {"value": "this"}}

    async with connect(box, era, answer=answer) as client:
        read = await client.complete("resources/read", {"uri": "ask://it"})
        got = await client.complete("prompts/get", {"name": "prompt"})

    assert (read["contents"][0]["text"], got["messages"][0]["content"]["text"]) == ("this", "this")


@pytest.mark.parametrize("era", ERAS)
async def test_completion_that_asks_the_user_says_that_it_cannot(era: Era):
    box = Toolbox("asking")

    @box.prompt
    async def greet(name: str) -> str:
        return name

    @box.completion("greet", "name")
    async def names(call: Call) -> list[str]:
        return [await call.ask("Which?", str)]

    def answer(method: str, params: Any) -> Any:
        return {"action": "accept", "content": {"value": "this"}}

    async with connect(box, era, answer=answer) as client:
        with pytest.raises(PeerError, match="cannot be asked during a completion or a subscription"):
            await client.request("completion/complete", completing("greet", "name", "b"))


def test_manifest_has_resources_and_prompts_with_their_codes():
    manifest = shop().manifest()

    assert [each["uri"] for each in manifest["resources"]] == ["shop://logo", "shop://menu"]
    assert [each["uriTemplate"] for each in manifest["resource_templates"]] == [
        "shop://both{?kind}",
        "shop://orders/{id}",
        "shop://secrets/{name}",
    ]
    assert {"BAD_ARGUMENT", "SOLD_OUT", "TIMEOUT"} <= set(manifest["resource_templates"][1]["codes"])
    assert [each["name"] for each in manifest["prompts"]] == ["greet", "look"]
    assert manifest["codes"]["SOLD_OUT"]["hint"] == "Order something else."


async def test_included_box_brings_its_features():
    outer = Toolbox("outer")
    outer.include(shop(), "shop")

    async with connect(outer, "modern") as client:
        prompts = [each["name"] for each in (await client.request("prompts/list"))["prompts"]]
        read = await client.request("resources/read", {"uri": "shop://menu"})
        completed = await client.request("completion/complete", completing("shop_greet", "name", "b"))

    assert prompts == ["shop_greet", "shop_look"]
    assert (read["contents"][0]["text"], completed["completion"]["values"]) == ("# Soup", ["Bob"])


def test_include_adds_nothing_if_a_uri_is_taken():
    outer = Toolbox("outer")
    outer.resource("shop://menu")(lambda: "mine")

    with pytest.raises(HoldfastError, match="two resources"):
        outer.include(shop(), "shop")

    assert [each["uri"] for each in outer.manifest()["resources"]] == ["shop://menu"]
    assert "prompts" not in outer.manifest()


async def no_parameters() -> str:
    return ""


async def one(id: str) -> str:
    return id


async def two(id: str, other: str) -> str:
    return id + other


async def with_default(id: str, other: str = "") -> str:
    return id + other


def add_completion(target: str, argument: str, handler: Any) -> Any:
    box = Toolbox("bad")
    box.prompt(name="prompt")(one)
    box.completion("prompt", "id")(no_parameters)
    return lambda: box.completion(target, argument)(handler)


def add_resource(uri: str, handler: Any, **options: Any) -> Any:
    return lambda: Toolbox("bad").resource(uri, **options)(handler)


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (add_resource("x://{id}", no_parameters), "no parameter 'id'"),
        (add_resource("x://{id}", two), "no {other}"),
        (add_resource("x://{id}", with_default), "no client can send"),
        (add_resource("x://it{?id}", one), "needs a default"),
        (add_resource("x://{id}", one, codes=["NO_SUCH"]), "does not exist"),
        (lambda: Toolbox("bad").prompt(name="a b")(one), "not a valid prompt name"),
        (lambda: Toolbox("bad").prompt("a")(one), "To name a prompt"),  # type: ignore[call-overload]  # pyright: ignore
        (lambda: Toolbox("bad").resource(one), "needs a URI"),  # type: ignore[arg-type]  # pyright: ignore
        (add_completion("none", "id", no_parameters), "no prompt or resource template"),
        (add_completion("prompt", "other", no_parameters), "no argument 'other'"),
        (add_completion("prompt", "id", no_parameters), "two completions"),
        (lambda: Toolbox("bad").remove(prompt="none"), "no prompt 'none'"),
    ],
)
def test_feature_that_cannot_work_is_refused_when_it_is_added(add: Any, problem: str):
    with pytest.raises(HoldfastError, match=problem):
        add()
