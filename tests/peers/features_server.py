"""A toolkit server with everything besides plain tools, for tests with third-party clients."""

from dataclasses import dataclass
from typing import Annotated, Literal

from holdfast.toolkit import Call, Image, Message, Toolbox

box = Toolbox("features-server", version="1", dynamic=True)


@dataclass(frozen=True)
class Order:
    dish: Literal["soup", "salad"]
    plates: Annotated[int, "How many?"] = 1


@box.tool()
async def order(call: Call) -> str:
    """Ask the user, then the client's model, then list the roots."""
    await call.log("info", "asking")
    wanted = await call.ask("What would you like?", Order)
    said = await call.sample(f"Praise the {wanted.dish}.", max_tokens=20)
    roots = await call.roots()
    return f"{wanted.plates} {wanted.dish}: {said.text} {[root.uri for root in roots]}"


@box.tool(codes=["DECLINED"])
async def decline(call: Call) -> str:
    """Ask a question that the client declines."""
    return await call.ask("Decline this.", str)


@box.tool()
async def change() -> None:
    """Change a resource and the list of prompts."""
    box.resource_updated("shop://menu")
    box.prompt(name="later")(greet)
    box.remove(prompt="later")


@box.resource("shop://menu", mime_type="text/plain")
async def menu() -> str:
    """The menu."""
    return "soup"


@box.resource("shop://orders/{id}")
async def one_order(id: int) -> dict[str, int]:
    """An order."""
    return {"id": id}


@box.prompt
async def greet(name: Annotated[str, "Whom?"]) -> list[str | Image | Message]:
    """Greet someone."""
    return [f"Hello {name}", Image(b"png"), Message("Hi.", "assistant")]


@box.completion("greet", "name")
async def names() -> list[str]:
    return ["Ann", "Bob"]


if __name__ == "__main__":
    box.main()
