"""The server of `before.py`, moved to the toolkit."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from holdfast.toolkit import Call, Given, Image, Reply, Text, Toolbox, ToolError


@dataclass
class Item:
    name: str
    price: float


STOCK = {"tea": Item("tea", 2.5), "milk": Item("milk", 1.0)}


async def lifespan(box: Toolbox) -> AsyncIterator[dict[str, Any]]:
    yield {"currency": "EUR"}


def get_stock() -> dict[str, Item]:
    return STOCK


box = Toolbox("shop", envelope="meta", lifespan=lifespan)


@box.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@box.tool
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello, {name}!"


@box.tool
def names() -> list[str]:
    """The names of all items."""
    return sorted(STOCK)


@box.tool
def item(name: str, stock: Annotated[dict[str, Item], Given(get_stock)]) -> Item:
    """An item."""
    return stock[name]


@box.tool
def totals(prices: dict[str, float]) -> dict[str, float]:
    """The sum of prices."""
    return {"total": sum(prices.values())}


@box.tool(operation="query", title="Cheap?", meta={"fastmcp": {"tags": ["prices"]}})
def is_cheap(price: float) -> Reply[dict[str, bool]]:
    """Whether a price is low."""
    return Reply([Text("cheap" if price < 2 else "dear")], {"cheap": price < 2})


@box.tool
def refuse() -> str:
    """Fail."""
    raise ToolError("Not today.")


@box.tool
def picture() -> Image:
    """An image."""
    return Image(b"\x89PNG", "image/png")


@box.tool
async def work(call: Call) -> str:
    """Report progress, and say in which currency."""
    await call.log("info", "working")
    await call.progress(1, total=2)
    return call.state["currency"]


@box.tool
async def confirm(call: Call) -> str:
    """Ask the user."""
    try:
        return f"accept {await call.ask('How many?', int)}"
    except ToolError:
        return "decline "


@box.resource("shop://menu", mime_type="text/plain")
def menu() -> str:
    """The menu."""
    return "tea, milk"


@box.resource("shop://price/{name}", mime_type="text/plain")
def price(name: str) -> str:
    """The price of an item."""
    return str(STOCK[name].price)


@box.prompt
def advise(topic: str) -> str:
    """Ask for advice."""
    return f"Advise me on {topic}."


if __name__ == "__main__":
    box.main()
