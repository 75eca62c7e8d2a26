"""Toolboxes that tests pass to a host as servers."""

from collections.abc import AsyncIterator

from holdfast.toolkit import Call, Image, Toolbox, ToolError

lifespans: list[str] = []


async def lifespan(box: Toolbox) -> AsyncIterator[None]:
    lifespans.append("begin")
    yield
    lifespans.append("end")


def make_box(name: str = "shop", *, envelope: bool = True) -> Toolbox:
    box = Toolbox(name, lifespan=lifespan, envelope="content" if envelope else "meta")
    sold_out = box.code("SOLD_OUT", http=409, hint="Order another one.")
    orders: list[str] = []

    @box.tool(codes=["SOLD_OUT"])
    def order(item: str, count: int = 1) -> dict[str, int]:
        """Order something."""
        if item == "cake":
            raise ToolError(sold_out, "There is no cake left.")
        orders.extend([item] * count)
        return {"orders": len(orders)}

    @box.tool()
    def whoami(call: Call) -> dict[str, str]:
        """Say who calls."""
        session = call.session
        assert session is not None
        return {"session": session.session_id, "user": session.user_id or "", "trust": session.trust_level}

    @box.tool()
    def picture() -> Image:
        """Return an image."""
        return Image(data=b"\x89PNG", mime_type="image/png")

    @box.tool()
    async def confirm(call: Call) -> bool:
        """Ask the user."""
        return await call.ask("Really?", bool)

    return box
