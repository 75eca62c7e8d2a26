import pytest

from holdfast.cli.paging import collect_pages, print_remaining
from holdfast.store.types import Page

pytestmark = pytest.mark.anyio


class Numbers:
    """Numbers from 0 on, a thousand per page."""

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
async def test_pages_are_collected_up_to_the_limit_and_the_rest_is_counted(
    count: int, limit: int | None, found: int, beyond: int
):
    assert await collect_pages(Numbers(count).page, limit) == ([*range(found)], beyond)


async def test_counting_stops_at_ten_thousand(capsys: pytest.CaptureFixture[str]):
    print_remaining(10, 10_000)

    assert (
        capsys.readouterr().err
        == "Showing the latest 10; at least 10000 more. To see more, add --limit 20 or --all.\n"
    )
