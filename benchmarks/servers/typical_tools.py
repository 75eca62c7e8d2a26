"""Ten typical tools, and a call of each. The same functions are served by our toolkit and by FastMCP."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic requires it before Python 3.12


@dataclass
class Weather:
    city: str
    celsius: float
    condition: Literal["sun", "clouds", "rain", "snow"]
    humidity: int


@dataclass
class Note:
    id: int
    title: str
    tags: list[str]


class Issue(BaseModel):
    number: int
    title: str
    state: Literal["open", "closed"] = "open"
    labels: list[str] = []
    due: date | None = None


class Conversion(TypedDict):
    amount: float
    currency: str
    rate: float


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def get_weather(city: Annotated[str, Field(description="The city's name.")], days_ahead: int = 0) -> Weather:
    """Get the weather of a city, today or on one of the next days."""
    return Weather(city, 11.5, "clouds", 71)


def search_notes(
    query: Annotated[str, Field(description="Words that the note must have.")],
    limit: Annotated[int, Field(ge=1, le=50, description="How many notes to return at most.")] = 10,
    tags: list[str] | None = None,
) -> list[Note]:
    """Search the notebook, and return the notes that match best."""
    return [Note(number, f"Notes on {query}, part {number}", ["work", "draft"]) for number in range(1, 6)]


def read_file(path: str, first_line: int = 1, lines: int = 100) -> str:
    """Read a part of a text file."""
    return "\n".join(f"{number}: def function_{number}(value: int) -> int:" for number in range(1, 31))


def list_folder(path: str = ".", pattern: str = "*") -> list[str]:
    """List the files in a folder."""
    return [f"src/package/module_{number}.py" for number in range(20)]


def create_issue(
    title: str,
    body: str = "",
    labels: Annotated[list[str], Field(description="Labels that exist already.")] = [],  # noqa: B006
    priority: Literal["low", "normal", "high"] = "normal",
) -> Issue:
    """Create an issue in the tracker."""
    return Issue(number=412, title=title, labels=labels)


def run_query(sql: str, limit: Annotated[int, Field(ge=1, le=1000)] = 100) -> dict[str, Any]:
    """Run a read-only SQL query on the shop's database."""
    rows = [[number, f"customer-{number}@example.org", 19.9 * number] for number in range(1, 11)]
    return {"columns": ["id", "email", "total"], "rows": rows, "more": False}


def send_message(to: list[str], subject: str, body: str, *, urgent: bool = False) -> bool:
    """Send a message to colleagues."""
    return True


def convert_currency(amount: Annotated[float, Field(gt=0)], source: str, target: str) -> Conversion:
    """Convert an amount of money at today's rate."""
    return {"amount": round(amount * 1.0832, 2), "currency": target, "rate": 1.0832}


def close_issue(number: Annotated[int, Field(ge=1)], reason: str | None = None) -> None:
    """Close an issue in the tracker."""


CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (add, {"a": 0.1, "b": 1.2}),
    (get_weather, {"city": "Bern"}),
    (search_notes, {"query": "release"}),
    (read_file, {"path": "src/main.py", "lines": 30}),
    (list_folder, {"path": "src/package"}),
    (create_issue, {"title": "Printer is out of paper", "labels": ["office"]}),
    (run_query, {"sql": "select id, email, total from orders"}),
    (send_message, {"to": ["ann"], "subject": "Lunch", "body": "At noon?"}),
    (convert_currency, {"amount": 12.5, "source": "EUR", "target": "USD"}),
    (close_issue, {"number": 412}),
]
