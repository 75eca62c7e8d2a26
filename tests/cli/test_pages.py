import pytest

from holdfast.cli.pages import gathered, say_beyond
from holdfast.store.rows import Page

pytestmark = pytest.mark.anyio


class Shelf:
    """So many numbers, a thousand to a page."""

    def __init__(self, count: int) -> None:
        self.numbers = range(count)

    async def page(self, cursor: str | None) -> Page[int]:
        start = int(cursor or 0)
        end = start + 1000
        return Page(
            items=tuple(self.numbers[start:end]), cursor=str(end) if end < len(self.numbers) else None
        )


@pytest.mark.parametrize(
    ("count", "limit", "found", "beyond"),
    [
        (0, 50, 0, 0),
        (50, 50, 50, 0),
        (51, 50, 50, 1),
        (2500, 1500, 1500, 1000),
        (2500, None, 2500, 0),
        (20_000, 10, 10, 10_990),
    ],
)
async def test_as_many_as_were_asked_for_and_how_many_more(
    count: int, limit: int | None, found: int, beyond: int
):
    assert await gathered(Shelf(count).page, limit) == ([*range(found)], beyond)


async def test_where_counting_would_take_long_it_ends_and_says_so(capsys: pytest.CaptureFixture[str]):
    say_beyond(10, 10_000)

    assert (
        capsys.readouterr().err == "The latest 10; at least 10000 more. To see them: --limit 20, or --all\n"
    )
