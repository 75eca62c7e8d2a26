"""A box mounts in an ASGI app with the authentication that its author chooses; without authentication, only loopback is served."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from holdfast import HoldfastError
from holdfast.testing import host_of
from holdfast.token import Signer
from holdfast.toolkit import Call, Toolbox
from holdfast.toolkit.http_auth import Bearer, HoldfastTokens, JwtIssuer
from tests.connect.web import serve

pytestmark = pytest.mark.anyio

TOKEN = "a-long-random-token-1"
began: list[str] = []


def make_box() -> Toolbox:
    async def lifespan(box: Toolbox) -> AsyncIterator[None]:
        began.append("begin")
        yield
        began.append("end")

    box = Toolbox("desk", lifespan=lifespan)

    @box.tool()
    def who(call: Call) -> dict[str, Any]:
        """Say who calls."""
        session = call.session
        return {
            "user": session.user_id if session else None,
            "trust": session.trust_level.value if session else "none",
            "headers": dict(call.headers),
        }

    return box


def mount(box: Toolbox, **options: Any) -> FastAPI:
    """The box in a FastAPI application, below /tools."""
    desk = box.http_app(**options)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with desk.running():
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/tools", desk)
    return app


async def who(url: str, path: str = "/tools/mcp", **headers: str) -> Any:
    """What the tool sees, through a session of a host; None if the server refuses."""
    async with (
        host_of(desk={"url": url + path, "headers": headers}) as host,
        host.session() as session,
    ):
        result = await session.call("desk.who")
        return {key: result.data[key] for key in ("user", "trust", "headers")} if result.ok else None


async def get(
    url: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, Mapping[str, str], bytes]:
    import aiohttp

    async with (
        aiohttp.ClientSession() as client,
        client.request(method, url + path, headers=headers) as answer,
    ):
        return answer.status, answer.headers, await answer.read()


@pytest.mark.promise("KIT-26")
async def test_a_box_in_fastapi_knows_its_users_by_their_tokens():
    began.clear()
    app = mount(make_box(), auth=Bearer({TOKEN: "ann"}), trust="direct", headers=["X-Request-Id"])
    async with serve(app, lifespan="on") as url:
        ann = await who(url, Authorization=f"Bearer {TOKEN}", **{"X-Request-Id": "7", "X-Other": "8"})
        wrong = await who(url, Authorization="Bearer another-long-token-2")
        refused = await get(url, "/tools/mcp", "POST")
        health = await get(url, "/tools/healthz")

    assert ann == {"user": "ann", "trust": "direct", "headers": {"x-request-id": "7"}}
    assert (wrong, refused[0], refused[1]["WWW-Authenticate"]) == (None, 401, 'Bearer realm="mcp"')
    assert (health[0], json.loads(health[2]), began) == (200, {"ok": True}, ["begin", "end"])


@pytest.mark.promise("KIT-26")
@pytest.mark.parametrize("path", ["/", "/v1/mcp"])
async def test_a_box_answers_at_its_path_below_the_mount(path: str):
    app = mount(make_box(), auth=Bearer({TOKEN: "ann"}), path=path)
    async with serve(app, lifespan="on") as url:
        found = await who(url, f"/tools{path}", Authorization=f"Bearer {TOKEN}")
        elsewhere = await get(url, "/tools/mcp", "POST", Authorization=f"Bearer {TOKEN}")

    assert (found["user"], elsewhere[0]) == ("ann", 404)


@pytest.mark.promise("KIT-26")
async def test_a_function_decides_who_calls():
    async def by_header(headers: Mapping[str, str]) -> str | None:
        return headers.get("x-user")

    def broken(headers: Mapping[str, str]) -> str:
        raise RuntimeError("database password")

    async with serve(mount(make_box(), auth=by_header), lifespan="on") as url:
        assert await who(url, **{"X-User": "bob"}) == {"user": "bob", "trust": "sandboxed", "headers": {}}
        assert await who(url) is None
    async with serve(mount(make_box(), auth=broken), lifespan="on") as url:
        status, _, body = await get(url, "/tools/mcp", "POST")
        assert (status, b"password" in body) == (500, False)


@pytest.mark.promise("KIT-26")
@pytest.mark.parametrize("audience", ["http://127.0.0.1/tools/mcp", "shop-api"])
async def test_an_issuers_tokens_are_verified_with_its_keys(audience: str):
    own_url = "http://127.0.0.1/tools/mcp"
    key = Ed25519PrivateKey.generate()
    public = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(key.public_key()))
    issuer = FastAPI()

    @issuer.get("/keys")
    def keys() -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        return {"keys": [{**public, "kid": "one", "use": "sig"}]}

    async with serve(issuer) as issuer_url:
        auth = JwtIssuer(
            issuer=issuer_url,
            audience=audience,
            jwks_url=f"{issuer_url}/keys",
            scopes=("tools",),
            url="" if audience == own_url else own_url,
        )
        claims = {"iss": issuer_url, "aud": audience, "sub": "ann", "exp": time.time() + 60, "scope": "tools"}
        good = jwt.encode(claims, key, "EdDSA", headers={"kid": "one"})
        without_scope = jwt.encode({**claims, "scope": ""}, key, "EdDSA", headers={"kid": "one"})
        foreign = jwt.encode({**claims, "aud": "http://other/"}, key, "EdDSA", headers={"kid": "one"})
        async with serve(mount(make_box(), auth=auth), lifespan="on") as url:
            ann = await who(url, Authorization=f"Bearer {good}")
            refused = [
                await who(url, Authorization=f"Bearer {token}") for token in (without_scope, foreign, "x.y.z")
            ]
            status, headers, _ = await get(url, "/tools/mcp", "POST")
            lacking = await get(url, "/tools/mcp", "POST", Authorization=f"Bearer {without_scope}")
            metadata = await get(url, "/tools/.well-known/oauth-protected-resource")

    assert (ann["user"], refused, status) == ("ann", [None] * 3, 401)
    found = "http://127.0.0.1/tools/.well-known/oauth-protected-resource"
    assert f'resource_metadata="{found}"' in headers["WWW-Authenticate"]
    named = f'Bearer realm="mcp", resource_metadata="{found}", error="insufficient_scope", scope="tools"'
    assert (lacking[0], lacking[1]["WWW-Authenticate"]) == (403, named)
    assert json.loads(metadata[2]) == {
        "resource": own_url,
        "authorization_servers": [issuer_url],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["tools"],
    }


async def request_from(app: Any, peer: str, **headers: str) -> int:
    """The status of a POST from this address, with these headers."""
    raw = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": "POST", "path": "/mcp", "root_path": "", "query_string": b"",
        "client": (peer, 5), "headers": [*raw, (b"content-type", b"application/json")],
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"jsonrpc":"2.0","id":1,"method":"ping"}'}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


@pytest.mark.promise("KIT-26")
async def test_without_authentication_only_programs_on_this_machine_are_served():
    box = make_box()
    open_app = box.http_app()
    guarded = box.http_app(auth=lambda headers: "ann", hosts=["shop.example"], proxies=["10.0.0.9"])
    local = await request_from(open_app, "127.0.0.1", host="localhost")
    refused = [
        await request_from(open_app, "192.0.2.7", host="localhost"),
        await request_from(open_app, "127.0.0.1", host="shop.example"),
        await request_from(open_app, "127.0.0.1", host="localhost", x_forwarded_for="192.0.2.7"),
    ]
    control = await request_from(guarded, "192.0.2.7", host="shop.example")
    # Only the forwarded host of a proxy in `proxies` is used.
    by_proxy = await request_from(guarded, "10.0.0.9", host="internal", x_forwarded_host="shop.example")
    by_other = await request_from(guarded, "10.0.0.8", host="internal", x_forwarded_host="shop.example")

    assert (local in (200, 400), refused) == (True, [403] * 3)
    assert (control in (200, 400), by_proxy in (200, 400), by_other) == (True, True, 403)
    for options in ({"hosts": ["shop.example"]}, {"proxies": ["10.0.0.9"]}):
        with pytest.raises(HoldfastError, match="Without `auth`, a box serves only programs on this machine"):
            box.http_app(**options)  # type: ignore[arg-type]


async def test_wrong_options_are_refused_at_once():
    box = make_box()
    with pytest.raises(HoldfastError, match="at least 16 ASCII characters"):
        Bearer("short")
    with pytest.raises(HoldfastError, match="may not name 'authorization'"):
        box.http_app(headers=["Authorization"])
    with pytest.raises(HoldfastError, match="must begin with a slash, such as '/tools'"):
        box.http_app(path="tools")
    with pytest.raises(HoldfastError, match="`origins` contains 'shop'"):
        box.http_app(origins=["shop"])
    wrong: list[tuple[dict[str, Any], str]] = [
        *(
            ({name: "shop.example"}, f"`{name}` must be a list of strings, not one string")
            for name in ("hosts", "origins", "headers", "proxies")
        ),
        ({"hosts": ["https://shop.example"]}, "Write host names such as 'shop.example'"),
        ({"hosts": ["shop.example:8443"]}, "`hosts` contains 'shop.example:8443'"),
        ({"proxies": ["10.0.0.0/8"]}, "`proxies` contains '10.0.0.0/8'. Write IP addresses"),
        ({"headers": [5]}, "`headers` must be a string, not a value of the type int"),
    ]
    for options, message in wrong:
        with pytest.raises(HoldfastError) as raised:
            box.http_app(auth=Bearer(TOKEN), **options)
        assert (raised.value.code.name, message in raised.value.message) == ("BAD_ARGUMENT", True)
    with pytest.raises(HoldfastError, match="`auth` must be"):
        box.http_app(auth=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="http_app has no option 'token'"):
        box.http_app(token="x")  # type: ignore[arg-type]


@pytest.mark.promise("KIT-26")
async def test_tokens_of_a_holdfast_host_carry_its_session():
    apps: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[0](scope, receive, send)

    async with host_of() as host, serve(app, lifespan="off") as url:
        signer = Signer(host.settings.data_dir / "keys")
        signer.jwks()
        apps.append(make_box().http_app(auth=HoldfastTokens(keys=signer.public_file, url=f"{url}/mcp")))
        async with host.session(user_id="ann", servers={"desk": {"url": f"{url}/mcp"}}) as session:
            seen = (await session.call("desk.who")).raise_for_error().data
        status, _, _ = await get(url, "/mcp", "POST")

    assert (seen["user"], seen["trust"], status) == ("ann", "direct", 401)


@pytest.mark.promise("KIT-26")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bearer({}), "Bearer has no token, so it would refuse every request. Make one: python -c"),
        (lambda: Bearer(""), "A bearer token has at least 16 ASCII characters"),
        (lambda: Bearer({TOKEN: ""}), "needs the id of its user"),
        (lambda: Bearer([TOKEN]), "not a value of the type list"),  # type: ignore[arg-type]
        (lambda: JwtIssuer(issuer="http://login.example", audience="https://a"), "`issuer` of JwtIssuer"),
        (lambda: JwtIssuer(issuer="", audience="https://a"), "`issuer` of JwtIssuer must be a URL"),
        (lambda: JwtIssuer(issuer="https://login.example", audience=""), "`audience` of JwtIssuer must be"),
        (
            lambda: JwtIssuer(
                issuer="https://login.example", audience="https://a", jwks_url="http://k.example"
            ),
            "`jwks_url` of JwtIssuer: 'http://k.example' cannot be used: the URL must begin with https://",
        ),
    ],
)
def test_authentication_that_cannot_work_or_is_not_safe_is_refused_at_once(
    make: Callable[[], object], message: str
):
    with pytest.raises(HoldfastError) as raised:
        make()

    assert (raised.value.code.name, message in raised.value.message) == ("BAD_ARGUMENT", True)
    assert JwtIssuer(issuer="http://127.0.0.1:8000", audience="http://127.0.0.1/mcp").issuer
