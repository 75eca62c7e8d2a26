"""A server of FastMCP with ten tools, a resource, a template and a prompt. `after.py` is the same server on the toolkit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.types import Image


@dataclass
class Item:
    name: str
    price: float


STOCK = {"tea": Item("tea", 2.5), "milk": Item("milk", 1.0)}


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"currency": "EUR"}


def get_stock() -> dict[str, Item]:
    return STOCK


mcp = FastMCP("shop", lifespan=lifespan)


@mcp.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello, {name}!"


@mcp.tool
def names() -> list[str]:
    """The names of all items."""
    return sorted(STOCK)


@mcp.tool
def item(name: str, stock: dict[str, Item] = Depends(get_stock)) -> Item:  # noqa: B008
    """An item."""
    return stock[name]


@mcp.tool
def totals(prices: dict[str, float]) -> dict[str, float]:
    """The sum of prices."""
    return {"total": sum(prices.values())}


@mcp.tool(tags={"prices"}, annotations={"readOnlyHint": True, "title": "Cheap?"})
def is_cheap(price: float) -> ToolResult:
    """Whether a price is low."""
    return ToolResult(content="cheap" if price < 2 else "dear", structured_content={"cheap": price < 2})


@mcp.tool
def refuse() -> str:
    """Fail."""
    raise ToolError("Not today.")


@mcp.tool
def picture() -> Image:
    """An image."""
    return Image(data=b"\x89PNG", format="png")


@mcp.tool
async def work(context: Context) -> str:
    """Report progress, and say in which currency."""
    await context.info("working")
    await context.report_progress(1, 2)
    return context.lifespan_context["currency"]


@mcp.tool
async def confirm(context: Context) -> str:
    """Ask the user."""
    answer = await context.elicit("How many?", response_type=int)
    return f"{answer.action} {answer.data if answer.action == 'accept' else ''}"


@mcp.resource("shop://menu")
def menu() -> str:
    """The menu."""
    return "tea, milk"


@mcp.resource("shop://price/{name}")
def price(name: str) -> str:
    """The price of an item."""
    return str(STOCK[name].price)


@mcp.prompt
def advise(topic: str) -> str:
    """Ask for advice."""
    return f"Advise me on {topic}."


if __name__ == "__main__":
    mcp.run("stdio", show_banner=False)
