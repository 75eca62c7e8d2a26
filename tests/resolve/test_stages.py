"""Each stage by itself: what stands, what falls, and why."""

import time
from typing import Any

import pytest

from holdfast.model.aliases import Aliases
from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.launch import Confinement, Quota
from holdfast.model.resolution import Caution, Refusal, Resolution, Stage
from holdfast.model.server import Http, Lifetime, ServerSpec, Source, Sse, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.admit import admit
from holdfast.resolve.confine import Walls, confine
from holdfast.resolve.entry import Entry, Loaded
from holdfast.resolve.inject import inject
from holdfast.resolve.select import Narrowing, select
from holdfast.resolve.validate import validate

CONTEXT = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    workspace_id="mine",
    trust_level=Trust.SANDBOXED,
    user_id="me",
)
OWN = {
    "HOLDFAST_SESSION_ID": "sess_0123456789abcdef",
    "HOLDFAST_WORKSPACE_ID": "mine",
    "HOLDFAST_TRUST_LEVEL": "sandboxed",
    "HOLDFAST_USER_ID": "me",
}
ENVIRON = {"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", "AWS_SECRET": "s3cret", "TOKEN": "t0ken"}


def entry(value: Any, name: str = "s", source: Source = Source.USER) -> Entry:
    return Entry(name=name, source=source, origin=f"/{source}.json", value=value)


def checked(value: Any, name: str = "s", source: Source = Source.USER) -> Resolution:
    return validate(Loaded(entries=(entry(value, name, source),)), environ=ENVIRON)


def server(name: str = "s", source: Source = Source.USER, **fields: Any) -> ServerSpec:
    return ServerSpec(
        name=name, source=source, transport=fields.pop("transport", Stdio(command="x")), **fields
    )


def reasons(resolution: Resolution) -> list[str]:
    return [refusal.reason for refusal in resolution.refusals]


# validate


def test_the_formats_people_have_are_read():
    entries = (
        entry({"command": "npx", "args": ["-y", "x"], "env": {"A": "${TOKEN}"}, "autoApprove": []}, "stdio"),
        entry({"type": "stdio", "command": "${NOPE:-/bin/x}"}, "typed"),
        entry({"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}, "http"),
        entry({"type": "http", "url": "https://x.org/mcp"}, "http2"),
        entry({"type": "sse", "url": "https://x.org/sse"}, "sse"),
    )

    resolution = validate(Loaded(entries=entries), environ=ENVIRON)

    assert [server.transport for server in resolution.servers] == [
        Stdio(command="npx", args=("-y", "x"), env={"A": "t0ken"}),
        Stdio(command="/bin/x"),
        Http(url="https://x.org/mcp", headers={"Authorization": "Bearer t0ken"}),
        Http(url="https://x.org/mcp"),
        Sse(url="https://x.org/sse"),
    ]


def test_our_own_keys_are_read_from_the_host_and_the_user():
    resolution = checked(
        {
            "command": "x",
            "trust_level": "Untrusted",
            "lifetime": "host",
            "network": ["x.org:443"],
            "tools": ["a"],
        }
    )

    assert resolution.servers == (
        ServerSpec(
            name="s",
            source=Source.USER,
            origin="/user.json",
            digest=resolution.servers[0].digest,
            transport=Stdio(command="x", network=("x.org:443",)),
            trust=Trust.SANDBOXED,
            lifetime=Lifetime.HOST,
            tools=Choice(frozenset({"a"})),
        ),
    )


@pytest.mark.parametrize("source", [Source.PROJECT, Source.CLIENT])
def test_a_project_or_a_client_cannot_vouch_for_its_own_servers(source: Source):
    resolution = checked(
        {
            "command": "x",
            "trust_level": "sandboxed",
            "lifetime": "host",
            "network": ["x.org"],
            "tools": "none",
        },
        source=source,
    )
    (found,) = resolution.servers

    assert (found.trust, found.lifetime, found.transport, found.tools) == (
        Trust.DIRECT,
        Lifetime.SESSION,
        Stdio(command="x"),
        NONE,
    )
    assert resolution.cautions == (
        Caution(
            server="s",
            stage=Stage.VALIDATE,
            text=f"trust_level, lifetime, network cannot be set in /{source}.json and had no effect.",
        ),
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "The entry: Expected `object`, got `int`. Correct it in /user.json."),
        ({}, 'It has neither a "command" to start nor a "url" to reach.'),
        ({"command": "x", "url": "http://x"}, 'It has both "command" and "url". Keep one.'),
        ({"command": ["x"]}, "command: Expected `str | null`, got `array`. Correct it in /user.json."),
        ({"command": " "}, '"command" is empty.'),
        ({"command": "x", "args": "y"}, "args: Expected `array`, got `str`. Correct it in /user.json."),
        ({"command": "x", "args": ["a\0b"]}, '"command" and "args" cannot have a NUL character.'),
        ({"command": "x", "env": {"A B": "1"}}, "env: 'A B' is no name of a variable."),
        ({"command": "x", "env": {"A": 1}}, "env[...]: Expected `str`, got `int`. Correct it in /user.json."),
        ({"command": "x", "type": "http"}, 'A "command" is reached by stdio, not by http.'),
        ({"command": "${NOPE}"}, "The variable NOPE is not set. Set it, or give a default: ${NOPE:-…}."),
        (
            {"command": "x", "disabled": True},
            'It is disabled in /user.json. Remove "disabled" there to use it.',
        ),
        (
            {"command": "x", "network": ["http://x"]},
            "network: 'http://x' is no host name. Write example.org or example.org:443.",
        ),
        ({"url": "ftp://x"}, "'ftp://x' is no http or https address."),
        ({"url": "http://"}, "'http://' is no http or https address."),
        ({"url": "http://x:99999"}, "'http://x:99999' is no address."),
        (
            {"url": "http://u:p@x"},
            'The address holds a user name or password. Put it into "headers", by a ${VARIABLE}.',
        ),
        ({"url": "http://x/a b"}, "The address has a blank or a control character."),
        ({"url": "http://x", "type": "stdio"}, 'A "url" is reached by http or sse, not by stdio.'),
        ({"url": "http://x", "headers": {"A:": "b"}}, "headers: 'A:' is no name of a header."),
        (
            {"url": "http://x", "headers": {"A": "b\r\nC: d"}},
            "headers: the value of A has a line end or a NUL character.",
        ),
    ],
)
@pytest.mark.promise("RES-02")
def test_an_invalid_entry_falls_with_a_reason_to_act_on(value: Any, reason: str):
    assert checked(value) == Resolution(refusals=(Refusal(server="s", stage=Stage.VALIDATE, reason=reason),))


@pytest.mark.promise("RES-03")
def test_an_unknown_trust_level_is_an_error_never_direct():
    resolution = checked({"command": "x", "trust_level": "root"})

    assert (resolution.servers, reasons(resolution)) == (
        (),
        [
            "trust_level: 'root' is no trust level. Use one of: direct, trusted, full, vault, sandboxed, untrusted."
        ],
    )


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "x" * 129])
def test_a_name_that_would_forge_a_line_falls(name: str):
    assert reasons(checked({"command": "x"}, name)) == ["A server's name has 1 to 128 printable characters."]


@pytest.mark.promise("RES-08")
def test_the_name_of_a_built_in_server_cannot_be_taken():
    files = server("files", Source.BUILTIN)
    entries = tuple(entry({"command": "evil"}, "files", source) for source in (Source.HOST, Source.CLIENT))

    resolution = validate(Loaded(entries=entries), builtins=[files], environ={})

    assert resolution.servers == (files,)
    assert reasons(resolution) == ["This is the name of a built-in server. Choose another."] * 2


def test_of_two_servers_with_one_name_the_one_whose_source_is_trusted_most_stands():
    entries = (
        entry({"command": "mine"}, source=Source.USER),
        entry({"command": "theirs"}, source=Source.PROJECT),
    )

    resolution = validate(Loaded(entries=entries), environ={})

    assert [server.transport for server in resolution.servers] == [Stdio(command="mine")]
    assert reasons(resolution) == ["A server of this name comes from /user.json already. Rename one of them."]


@pytest.mark.parametrize(
    "variable", ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "DYLD_INSERT_LIBRARIES", "PATH"]
)
@pytest.mark.parametrize("source", [Source.PROJECT, Source.CLIENT])
@pytest.mark.promise("CTX-04")
def test_a_loader_variable_from_a_project_or_a_client_is_refused_with_a_reason(variable: str, source: Source):
    resolution = checked({"command": "x", "env": {variable: "evil"}}, source=source)

    assert resolution.servers == ()
    assert reasons(resolution)[0].startswith(f"env: {variable} may not come from /{source}.json: ")
    assert checked({"command": "x", "env": {variable: "mine"}}, source=Source.USER).refusals == ()


def test_a_client_s_words_are_meant_as_they_stand():
    resolution = checked({"command": "${TOKEN}", "args": ["${AWS_SECRET}"]}, source=Source.CLIENT)

    assert resolution.servers[0].transport == Stdio(command="${TOKEN}", args=("${AWS_SECRET}",))


# admit


@pytest.mark.promise("RES-05")
def test_a_sandboxed_session_gets_only_servers_marked_for_it_and_those_its_client_brought():
    marked, brought = server("marked", trust=Trust.SANDBOXED), server("brought", Source.CLIENT)
    resolution = Resolution(servers=(server("direct", origin="/x.json"), marked, brought))

    assert admit(resolution, Trust.SANDBOXED) == Resolution(
        servers=(marked, brought),
        refusals=(
            Refusal(
                server="direct",
                stage=Stage.ADMIT,
                reason="It is for direct sessions only and this one is sandboxed. To let sandboxed sessions use it, "
                'set "trust_level": "sandboxed" in /x.json.',
            ),
        ),
    )
    assert admit(resolution, Trust.DIRECT) == resolution


@pytest.mark.promise("RES-07")
def test_a_project_s_server_waits_until_that_exact_content_is_approved():
    resolution = checked({"command": "x"}, source=Source.PROJECT)
    changed = checked({"command": "x", "args": ["--evil"]}, source=Source.PROJECT)
    approved = {resolution.servers[0].digest}

    assert admit(resolution, Trust.DIRECT).servers == ()
    assert admit(resolution, Trust.DIRECT, approved).servers == resolution.servers
    assert reasons(admit(changed, Trust.DIRECT, approved)) == [
        "Nobody has approved it as it stands. Look at it and decide: holdfast servers approve"
    ]


# select


@pytest.mark.promise("RES-06")
@pytest.mark.promise("RES-12")
def test_a_workspace_and_an_agent_narrow_and_never_widen():
    resolution = Resolution(
        servers=(server("a"), server("b", tools=Choice(frozenset({"x", "y"}))), server("c"))
    )
    workspace = Narrowing(whose="the workspace mine", servers=Choice(frozenset({"a", "b", "zzz"})))
    agent = Narrowing(
        whose="the agent reviewer", servers=Choice(frozenset({"b", "c"})), tools=Choice(frozenset({"y", "z"}))
    )

    assert select(resolution, workspace, agent) == Resolution(
        servers=(server("b", tools=Choice(frozenset({"y"}))),),
        refusals=(
            Refusal(
                server="c", stage=Stage.SELECT, reason="It is not among the servers of the workspace mine."
            ),
            Refusal(
                server="a", stage=Stage.SELECT, reason="It is not among the servers of the agent reviewer."
            ),
        ),
    )
    assert select(resolution, Narrowing(whose="x", servers=ALL)) == resolution
    assert select(resolution, Narrowing(whose="x", servers=NONE)).servers == ()


@pytest.mark.promise("RES-13")
def test_a_workspace_overrides_a_local_server_s_environment():
    local, remote = (
        server("a", transport=Stdio(command="x", env={"A": "1", "B": "2"})),
        server("b", transport=Http(url="http://x")),
    )

    resolution = select(Resolution(servers=(local, remote)), env={"a": {"B": "3", "C": "4"}, "b": {"D": "5"}})

    assert [found.transport for found in resolution.servers] == [
        Stdio(command="x", env={"A": "1", "B": "3", "C": "4"}),
        Http(url="http://x"),
    ]


# inject


@pytest.mark.promise("CTX-01")
def test_every_local_server_is_told_who_is_calling_and_keeps_its_own_variables():
    resolution = inject(
        Resolution(servers=(server("a"), server("b", transport=Stdio(command="x", env={"MINE": "1"})))),
        CONTEXT,
    )

    assert [found.transport for found in resolution.servers] == [
        Stdio(command="x", env=OWN),
        Stdio(command="x", env={"MINE": "1", **OWN}),
    ]


@pytest.mark.promise("CTX-02")
def test_a_context_variable_that_was_set_before_is_overwritten_and_noted_once():
    claim = {
        "HOLDFAST_TRUST_LEVEL": "direct",
        "HOLDFAST_PARENT_SESSION_ID": "sess_x",
        "holdfast_session_id": "y",
    }

    resolution = inject(Resolution(servers=(server(transport=Stdio(command="x", env=claim)),)), CONTEXT)

    assert resolution.servers[0].transport == Stdio(command="x", env=OWN)
    assert resolution.cautions == (
        Caution(
            server="s",
            stage=Stage.INJECT,
            text="Its entry sets HOLDFAST_PARENT_SESSION_ID, HOLDFAST_TRUST_LEVEL, holdfast_session_id, "
            "which only the host decides; the host's values are in force.",
        ),
    )


@pytest.mark.promise("CTX-03")
def test_injection_changes_nothing_that_it_was_given():
    env = {"HOLDFAST_SESSION_ID": "claim", "A": "1"}
    before = Resolution(servers=(server(transport=Stdio(command="x", env=env)),))

    inject(before, CONTEXT)

    assert before == Resolution(servers=(server(transport=Stdio(command="x", env=env)),))
    assert env == {"HOLDFAST_SESSION_ID": "claim", "A": "1"}


@pytest.mark.parametrize(
    ("source", "kept"), [(Source.USER, True), (Source.PROJECT, False), (Source.CLIENT, False)]
)
def test_only_the_host_and_the_user_set_holdfast_up_for_a_server(source: Source, kept: bool):
    claim = server(source=source, transport=Stdio(command="x", env={"HOLDFAST_DATA_DIR": "/elsewhere"}))

    (told,) = inject(Resolution(servers=(claim,)), CONTEXT).servers

    assert isinstance(told.transport, Stdio)
    assert ("HOLDFAST_DATA_DIR" in told.transport.env) is kept


def test_a_shared_server_is_only_told_that_it_is_shared():
    shared = server(
        lifetime=Lifetime.HOST, transport=Stdio(command="x", env={"HOLDFAST_SESSION_ID": "claim"})
    )

    resolution = inject(Resolution(servers=(shared,)), CONTEXT)

    assert resolution.servers[0].transport == Stdio(command="x", env={"HOLDFAST_SHARED": "1"})


def test_a_remote_server_s_entry_cannot_bring_its_own_token():
    remote = server(transport=Http(url="http://x", headers={"holdfast-context": "forged", "A": "b"}))

    resolution = inject(Resolution(servers=(remote,)), CONTEXT)

    assert resolution.servers[0].transport == Http(url="http://x", headers={"A": "b"})
    assert len(resolution.cautions) == 1


@pytest.mark.promise("CTX-12")
def test_aliases_tell_the_same_under_other_names_and_cannot_be_claimed_either():
    aliases = Aliases(env_prefixes=("PARACHUTE",), session_variables=("AGENT_SESSION_ID",))
    claim = Stdio(command="x", env={"PARACHUTE_TRUST_LEVEL": "direct"})

    resolution = inject(Resolution(servers=(server(transport=claim),)), CONTEXT, aliases)

    assert resolution.servers[0].transport == Stdio(
        command="x",
        env={
            **OWN,
            "PARACHUTE_SESSION_ID": "sess_0123456789abcdef",
            "PARACHUTE_WORKSPACE_ID": "mine",
            "PARACHUTE_TRUST_LEVEL": "sandboxed",
            "PARACHUTE_USER_ID": "me",
            "AGENT_SESSION_ID": "sess_0123456789abcdef",
        },
    )
    assert "PARACHUTE_TRUST_LEVEL" in resolution.cautions[0].text


# confine


@pytest.mark.promise("CTX-04")
def test_a_direct_server_starts_with_a_short_list_of_the_host_s_variables_and_its_own():
    walls = Walls(environ=ENVIRON, pass_on=("TOKEN", "HOLDFAST_SESSION_ID"))
    resolution = confine(
        Resolution(servers=(server(transport=Stdio(command="x", env={"A": "1"})),)), Trust.DIRECT, walls
    )

    assert resolution.servers == (
        server(
            transport=Stdio(
                command="x",
                env={"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", "TOKEN": "t0ken", "A": "1"},
            )
        ),
    )


@pytest.mark.promise("RES-05")
def test_every_local_server_of_a_sandboxed_session_is_confined():
    walls = Walls(environ=ENVIRON, roots=("/work",), quota=Quota(processes=5), pass_on=("TOKEN",))
    local = server(transport=Stdio(command="x", env={"A": "1"}, network=("x.org",)))

    resolution = confine(Resolution(servers=(local,)), Trust.SANDBOXED, walls)

    assert resolution.servers == (
        server(
            transport=Stdio(
                command="x",
                env={"PATH": "/bin", "LC_ALL": "C", "HOME": "/tmp", "TMPDIR": "/tmp", "A": "1"},
                network=("x.org",),
            ),
            confinement=Confinement(roots=("/work",), network=("x.org",), quota=Quota(processes=5)),
        ),
    )


@pytest.mark.parametrize("own", ["/home/me/.local/share/holdfast", "/home/me", "/home"])
def test_a_confined_server_never_has_holdfast_s_own_files_within_its_walls(own: str):
    walls = Walls(roots=("/home/me",), off_limits=("/etc/holdfast", own))
    resolution = Resolution(servers=(server(),))

    assert reasons(confine(resolution, Trust.SANDBOXED, walls)) == [
        f"/home/me holds Holdfast's own files ({own}). Open the session in a folder of its own."
    ]
    assert confine(resolution, Trust.DIRECT, walls).refusals == ()


@pytest.mark.promise("BOX-04")
def test_without_a_sandbox_local_servers_of_a_sandboxed_session_are_refused():
    walls = Walls(no_sandbox="Install bubblewrap.")
    resolution = Resolution(servers=(server("local"), server("remote", transport=Http(url="https://x.org"))))

    assert confine(resolution, Trust.SANDBOXED, walls) == Resolution(
        servers=(server("remote", transport=Http(url="https://x.org")),),
        refusals=(
            Refusal(
                server="local",
                stage=Stage.CONFINE,
                reason="This session is sandboxed, and no sandbox works here. Install bubblewrap.",
            ),
        ),
    )
    assert confine(resolution, Trust.DIRECT, walls).refusals == ()


@pytest.mark.parametrize(
    ("source", "trust", "stands"),
    [
        (Source.USER, Trust.DIRECT, True),
        (Source.USER, Trust.SANDBOXED, False),
        (Source.CLIENT, Trust.DIRECT, False),
        (Source.CLIENT, Trust.SANDBOXED, False),
    ],
)
@pytest.mark.promise("RES-05")
def test_inside_addresses_are_off_limits_for_sandboxed_sessions_and_for_what_a_client_brought(
    source: Source, trust: Trust, stands: bool
):
    resolution = Resolution(servers=(server(source=source, transport=Http(url="http://127.0.0.1:8000/mcp")),))

    assert bool(confine(resolution, trust, Walls()).servers) is stands
    assert confine(resolution, trust, Walls(reachable=("127.0.0.1",))) == resolution


@pytest.mark.promise("CTX-14")
def test_telling_ten_servers_takes_less_than_a_millisecond_and_a_thousand_a_hundred_times_that():
    def milliseconds(count: int) -> float:
        servers = tuple(
            server(f"s{number}", transport=Stdio(command="x", env={"A": "1"})) for number in range(count)
        )
        took: list[float] = []
        for _ in range(20):
            began = time.perf_counter()
            inject(Resolution(servers=servers), CONTEXT)
            took.append((time.perf_counter() - began) * 1000)
        return min(took)

    ten, thousand = milliseconds(10), milliseconds(1000)

    assert ten < 1
    assert thousand < 300 * ten
