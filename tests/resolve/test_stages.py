"""Each stage by itself: which servers pass, which are refused, and why."""

from typing import Any

import pytest

from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.context import SessionContext
from holdfast.model.context_aliases import ContextAliases
from holdfast.model.ids import SessionId
from holdfast.model.process import Confinement
from holdfast.model.quota import Quota
from holdfast.model.resolution import Refusal, Resolution, SessionWarning, Stage
from holdfast.model.server import Http, Lifetime, ServerSpec, Source, Sse, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.admit import ServerAnswers, admit
from holdfast.resolve.confine import ConfinePolicy, confine
from holdfast.resolve.expand import expand_servers
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.inject import inject
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.select import Restriction, select
from holdfast.resolve.server_entry import ServerEntry
from holdfast.resolve.validate import validate
from tests.cost import least_cpu_seconds

CONTEXT = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    workspace_id="mine",
    trust_level=Trust.SANDBOXED,
    user_id="me",
)
CONTEXT_VARS = {
    "HOLDFAST_SESSION_ID": "sess_0123456789abcdef",
    "HOLDFAST_WORKSPACE_ID": "mine",
    "HOLDFAST_TRUST_LEVEL": "sandboxed",
    "HOLDFAST_USER_ID": "me",
}
ENVIRON = {"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", "AWS_SECRET": "s3cret", "TOKEN": "t0ken"}


def entry(value: Any, name: str = "s", source: Source = Source.USER) -> ServerEntry:
    return ServerEntry(name=name, source=source, origin=f"/{source}.json", value=value)


def validate_entry(value: Any, name: str = "s", source: Source = Source.USER) -> Resolution:
    return expand_servers(validate(LoadedEntries(entries=(entry(value, name, source),))), ENVIRON)


def server(name: str = "s", source: Source = Source.USER, **fields: Any) -> ServerSpec:
    return ServerSpec(
        name=name, source=source, transport=fields.pop("transport", Stdio(command="x")), **fields
    )


def reasons(resolution: Resolution) -> list[str]:
    return [refusal.reason for refusal in resolution.refusals]


# validate


def test_common_entry_formats_are_accepted():
    entries = (
        entry({"command": "npx", "args": ["-y", "x"], "env": {"A": "${TOKEN}"}, "autoApprove": []}, "stdio"),
        entry({"type": "stdio", "command": "${NOPE:-/bin/x}"}, "typed"),
        entry({"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}, "http"),
        entry({"type": "http", "url": "https://x.org/mcp"}, "http2"),
        entry({"type": "sse", "url": "https://x.org/sse"}, "sse"),
    )

    resolution = expand_servers(validate(LoadedEntries(entries=entries)), ENVIRON)

    assert [server.transport for server in resolution.servers] == [
        Stdio(command="npx", args=("-y", "x"), env={"A": "t0ken"}),
        Stdio(command="/bin/x"),
        Http(url="https://x.org/mcp", headers={"Authorization": "Bearer t0ken"}),
        Http(url="https://x.org/mcp"),
        Sse(url="https://x.org/sse"),
    ]


def test_keys_that_grant_something_take_effect_in_the_users_own_list():
    resolution = validate_entry(
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
            identity=resolution.servers[0].identity,
            transport=Stdio(command="x", network=("x.org:443",)),
            min_trust=Trust.SANDBOXED,
            lifetime=Lifetime.HOST,
            tools=Allowlist(frozenset({"a"})),
        ),
    )


@pytest.mark.parametrize("source", [Source.PROJECT, Source.CLIENT])
def test_projects_and_clients_cannot_vouch_for_their_servers(source: Source):
    resolution = validate_entry(
        {
            "command": "x",
            "trust_level": "sandboxed",
            "lifetime": "host",
            "writable": [".git"],
            "tools": "none",
        },
        source=source,
    )
    (found,) = resolution.servers

    assert (found.min_trust, found.lifetime, found.transport, found.tools) == (
        Trust.DIRECT,
        Lifetime.SESSION,
        Stdio(command="x"),
        ALLOW_NONE,
    )
    assert resolution.warnings == (
        SessionWarning(
            server="s",
            stage=Stage.VALIDATE,
            text=f"These keys have no effect in /{source}.json: trust_level, lifetime, writable. "
            "Only the operator's list, your own list and `Host(servers=…)` can set them.",
        ),
    )


def test_paths_and_hosts_of_a_project_are_kept_for_its_approval_and_those_of_a_client_are_not():
    value = {"command": "x", "network": ["x.org"], "readable": ["/data"]}
    (project,) = validate_entry(value, source=Source.PROJECT).servers
    by_client = validate_entry(value, source=Source.CLIENT)

    assert project.transport == Stdio(command="x", network=("x.org",), readable=("/data",))
    assert by_client.servers[0].transport == Stdio(command="x")
    assert "no effect in /client.json: network, readable." in by_client.warnings[0].text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "The entry: Expected `object`, got `int`. Correct it in /user.json."),
        ({}, 'It has neither a "command" nor a "url". Add one of them.'),
        (
            {"command": "x", "asks": ["tools"]},
            (
                'asks[0]: This value is not allowed. "asks" says which requests the server may send to its client: '
                '"all", "none", or a list of "roots", "sampling" and "elicitation". Correct it in /user.json.'
            ),
        ),
        ({"command": "x", "url": "http://x"}, 'It has both "command" and "url". Keep one.'),
        ({"command": ["x"]}, "command: Expected `str | null`, got `array`. Correct it in /user.json."),
        ({"command": " "}, '"command" is empty. Write the program to start.'),
        ({"command": "x", "args": "y"}, "args: Expected `array`, got `str`. Correct it in /user.json."),
        (
            {"command": "x", "args": ["a\0b"]},
            '"command" and "args" must not contain a NUL character. Remove it.',
        ),
        (
            {"command": "x", "env": {"A B": "1"}},
            "env: 'A B' is not a valid variable name. Use letters, digits and _.",
        ),
        ({"command": "x", "env": {"A": 1}}, "env[...]: Expected `str`, got `int`. Correct it in /user.json."),
        (
            {"command": "x", "type": "http"},
            '"type" must be stdio for a server with a "command", not http. Correct or remove it.',
        ),
        ({"command": "${NOPE}"}, "The variable NOPE is not set. Set it, or give a default: ${NOPE:-…}."),
        (
            {"command": "x", "disabled": True},
            'It is disabled in /user.json. Remove "disabled" there to use it.',
        ),
        (
            {"command": "x", "network": ["http://x"]},
            "network[0] is not a host name. Write example.org or example.org:443.",
        ),
        (
            {"command": "x", "network": ["example.org:443", "example.org:65536"]},
            "network[1] is not a host name. Write example.org or example.org:443.",
        ),
        (
            {"command": "x", "network": ["example.org:0"]},
            "network[0] is not a host name. Write example.org or example.org:443.",
        ),
        *(
            (
                {"command": "x", "network": [wildcard]},
                "network[0] contains a *, but a grant names one host. List each host: api.example.org, example.org:443.",
            )
            for wildcard in ("*.example.org", "*.example.org:443", "*", "api.*.org")
        ),
        ({"url": "ftp://x"}, '"url" is not an http or https URL. Write one such as https://example.org/mcp.'),
        ({"url": "http://"}, '"url" is not an http or https URL. Write one such as https://example.org/mcp.'),
        ({"url": "http://x:99999"}, '"url" is not a valid URL. Write one such as https://example.org/mcp.'),
        (
            {"url": "http://u:p@x"},
            'The URL contains a user name or password. Put it into "headers", as a ${VARIABLE}.',
        ),
        (
            {"url": "http://x/a b"},
            "The URL contains a space or a control character. Write it percent-encoded: a space is %20.",
        ),
        (
            {"url": "http://x", "type": "stdio"},
            '"type" must be http or sse for a server with a "url", not stdio. Correct or remove it.',
        ),
        (
            {"url": "http://x", "headers": {"A:": "b"}},
            "headers: 'A:' is not a valid header name. Use letters, digits and hyphens.",
        ),
        (
            {"url": "http://x", "headers": {"A": "b\r\nC: d"}},
            "headers: the value of A contains a line break or a NUL character. Remove it.",
        ),
    ],
)
@pytest.mark.promise("RES-02")
def test_invalid_entry_is_refused_with_a_reason_to_act_on(value: Any, reason: str):
    assert validate_entry(value) == Resolution(
        refusals=(Refusal(server="s", stage=Stage.VALIDATE, reason=reason),)
    )


@pytest.mark.parametrize("source", [Source.USER, Source.PROJECT, Source.CLIENT, Source.APP])
def test_every_source_can_choose_the_era(source: Source):
    entries = [
        entry({"command": "x", "era": era}, name, source)
        for name, era in (("a", "handshake"), ("b", "modern"), ("c", "new"))
    ]
    checked = validate(LoadedEntries(entries=tuple(entries)))

    assert [(server.name, server.era) for server in checked.servers] == [("a", "handshake"), ("b", "modern")]
    assert ["it must be 'handshake' or 'modern'" in refusal.reason for refusal in checked.refusals] == [True]


@pytest.mark.promise("RES-03")
def test_unknown_trust_level_is_an_error():
    resolution = validate_entry({"command": "x", "trust_level": "root"})

    assert (resolution.servers, reasons(resolution)) == (
        (),
        ["trust_level: 'root' is not a trust level. Use one of: direct, sandboxed."],
    )


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "x" * 129])
def test_name_with_control_characters_or_wrong_length_is_refused(name: str):
    assert reasons(validate_entry({"command": "x"}, name)) == [
        "A server's name must have 1 to 128 printable characters."
    ]


@pytest.mark.promise("RES-08")
def test_name_of_a_built_in_server_cannot_be_taken():
    files = server("files", Source.BUILTIN)
    entries = tuple(
        entry({"command": "evil"}, "files", source) for source in (Source.OPERATOR, Source.CLIENT)
    )

    resolution = validate(LoadedEntries(entries=entries), builtins=[files])

    assert resolution.servers == (files,)
    assert reasons(resolution) == ["A built-in server has this name. Choose another name."] * 2


def test_name_used_twice_goes_to_the_more_trusted_source():
    entries = (
        entry({"command": "mine"}, source=Source.USER),
        entry({"command": "theirs"}, source=Source.PROJECT),
    )

    resolution = admit(
        validate(LoadedEntries(entries=entries)), Trust.DIRECT, ServerAnswers(direct=[entries[1].digest])
    )

    assert [server.transport for server in resolution.servers] == [Stdio(command="mine")]
    assert reasons(resolution) == [
        "The entry in /project.json is not used: a server in /user.json has the same name. Rename one of them."
    ]


@pytest.mark.promise("RES-15")
def test_project_server_that_is_not_approved_takes_no_name():
    entries = (
        entry({"command": "theirs"}, source=Source.PROJECT),
        entry({"command": "mine"}, source=Source.CLIENT),
    )

    resolution = admit(validate(LoadedEntries(entries=entries)), Trust.DIRECT)

    assert [server.transport for server in resolution.servers] == [Stdio(command="mine")]
    assert reasons(resolution) == [
        "It is not approved, or has changed since you approved it. To review it, run: holdfast servers approve"
    ]


LOADER_VARIABLES = ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "GCONV_PATH", "GTK_MODULES")
CODE_VARIABLES = (
    "NODE_OPTIONS",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PATH",
    "GIT_SSH",
    "UV_INDEX",
    "NPM_CONFIG_PREFIX",
)


@pytest.mark.parametrize(
    ("variable", "source"),
    [
        *((name, source) for name in LOADER_VARIABLES for source in (Source.PROJECT, Source.CLIENT)),
        *((name, Source.PROJECT) for name in CODE_VARIABLES),
    ],
)
@pytest.mark.promise("CTX-04")
def test_loader_variable_from_a_project_or_client_is_refused(variable: str, source: Source):
    resolution = validate_entry({"command": "x", "env": {variable: "/evil"}}, source=source)

    assert resolution.servers == ()
    assert reasons(resolution)[0].startswith(f"env: {variable} may not come from /{source}.json: ")
    assert validate_entry({"command": "x", "env": {variable: "mine"}}, source=Source.USER).refusals == ()


@pytest.mark.parametrize(
    ("variable", "value", "is_covered"),
    [
        *(("PYTHONPATH", value, True) for value in ("src", "./src/", ".", "src:lib/more")),
        *(
            ("PYTHONPATH", value, False)
            for value in ("/lib", "../lib", "src/../..", "", "src:", "${HOME}", "~/lib")
        ),
        ("PythonPath", "src", False),
        ("NODE_OPTIONS", "--max-old-space-size=4096 --no-warnings", True),
        *(
            ("NODE_OPTIONS", f"--no-warnings {option}", False)
            for option in ("--require ./x", "--import=tsx", "-r", "x")
        ),
        ("NODE_OPTIONS", "--tls-keylog=keys", False),
        ("PATH", "bin", False),
        ("UV_PROJECT", "lib", False),
    ],
)
@pytest.mark.promise("CTX-04")
def test_project_may_set_what_its_approval_covers(variable: str, value: str, *, is_covered: bool):
    resolution = validate_entry({"command": "x", "env": {variable: value}}, source=Source.PROJECT)
    answers = ServerAnswers(direct=[one.digest for one in resolution.servers])

    assert [one.transport for one in admit(resolution, Trust.DIRECT).servers] == []
    assert len(admit(resolution, Trust.DIRECT, answers).servers) == int(is_covered)
    assert bool(resolution.refusals) is not is_covered
    if variable == "PYTHONPATH" and not is_covered:
        assert "An approval covers only folders of the project, as relative paths" in reasons(resolution)[0]


@pytest.mark.promise("CTX-04")
def test_approved_variables_of_a_project_are_refused_in_sandboxed_sessions():
    resolution = validate_entry({"command": "x", "env": {"PYTHONPATH": "src"}}, source=Source.PROJECT)
    answers = ServerAnswers(confined={resolution.servers[0].digest: ConfinedGrant()})

    assert admit(resolution, Trust.DIRECT, answers).refusals == ()
    (reason,) = reasons(admit(resolution, Trust.SANDBOXED, answers))
    assert reason.startswith("env: PYTHONPATH may not come from /project.json in a sandboxed session: ")


def test_variable_of_a_client_s_server_that_is_always_confined_is_refused_with_advice_that_works():
    entry = {"command": "x", "confined": True, "env": {"PYTHONPATH": "/lib"}}
    resolution = validate_entry(entry, source=Source.CLIENT)

    (reason,) = reasons(admit(resolution, Trust.DIRECT))
    assert reason.startswith(
        "env: PYTHONPATH may not come from /client.json for a server that runs confined: "
    )
    assert reason.endswith(" Remove it.")
    entry.pop("env")
    assert admit(validate_entry(entry, source=Source.CLIENT), Trust.DIRECT).refusals == ()


@pytest.mark.promise("CTX-04")
def test_python_path_of_a_project_means_folders_of_the_project():
    local = Stdio(command="x", env={"PYTHONPATH": "src:."}, module_folders=("src", "."))
    project = server(source=Source.PROJECT, origin="/work/.mcp.json", transport=local)
    resolution = confine(Resolution(servers=(project,)), Trust.DIRECT, ConfinePolicy())

    (found,) = resolution.servers
    assert isinstance(found.transport, Stdio)
    assert found.transport.env == {"PYTHONPATH": "/work/src:/work"}


@pytest.mark.parametrize("variable", CODE_VARIABLES)
@pytest.mark.promise("CTX-04")
def test_client_of_a_direct_session_may_set_variables_that_change_which_code_runs(variable: str):
    resolution = validate_entry({"command": "x", "env": {variable: "mine"}}, source=Source.CLIENT)

    assert admit(resolution, Trust.DIRECT) == resolution
    (reason,) = reasons(admit(resolution, Trust.SANDBOXED))
    assert reason.startswith(f"env: {variable} may not come from /client.json in a sandboxed session: ")


def test_variables_in_client_entries_are_not_expanded():
    resolution = validate_entry({"command": "${TOKEN}", "args": ["${AWS_SECRET}"]}, source=Source.CLIENT)

    assert resolution.servers[0].transport == Stdio(command="${TOKEN}", args=("${AWS_SECRET}",))


# admit


@pytest.mark.promise("RES-05")
def test_sandboxed_session_gets_only_marked_servers_and_its_clients_own():
    marked, client = server("marked", min_trust=Trust.SANDBOXED), server("client", Source.CLIENT)
    resolution = Resolution(servers=(server("direct", origin="/x.json"), marked, client))

    assert admit(resolution, Trust.SANDBOXED) == Resolution(
        servers=(marked, client),
        refusals=(
            Refusal(
                server="direct",
                stage=Stage.ADMIT,
                reason="Only direct sessions may use it, and this session is sandboxed. To let sandboxed sessions use it, "
                'set "trust_level": "sandboxed" in /x.json.',
            ),
        ),
    )
    assert admit(resolution, Trust.DIRECT) == resolution


@pytest.mark.promise("RES-07")
def test_project_server_is_refused_until_its_exact_content_is_approved():
    resolution = validate_entry({"command": "x"}, source=Source.PROJECT)
    changed = validate_entry({"command": "x", "args": ["--evil"]}, source=Source.PROJECT)
    approved = ServerAnswers(direct={resolution.servers[0].digest})

    assert admit(resolution, Trust.DIRECT).servers == ()
    assert admit(resolution, Trust.DIRECT, approved).servers == resolution.servers
    assert reasons(admit(changed, Trust.DIRECT, approved)) == [
        "It is not approved, or has changed since you approved it. To review it, run: holdfast servers approve"
    ]


CONFINED = ConfinedGrant(program_paths=("/opt/x",), readable=("/data",), network=("x.org",))


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.promise("RES-14")
def test_project_server_that_was_approved_as_confined_is_admitted_in_every_session(trust: Trust):
    resolution = validate_entry({"command": "x", "network": ["y.org"]}, source=Source.PROJECT)
    digest = resolution.servers[0].digest

    (admitted,) = admit(resolution, trust, ServerAnswers(confined={digest: CONFINED})).servers

    assert (admitted.always_confined, admitted.trust_in(trust), admitted.granted_paths) == (
        True,
        Trust.SANDBOXED,
        ("/opt/x",),
    )
    assert admitted.transport == Stdio(command="x", network=("y.org", "x.org"), readable=("/data",))


@pytest.mark.promise("RES-05")
def test_sandboxed_session_does_not_get_a_project_server_with_the_users_rights_and_says_what_to_run():
    resolution = validate_entry({"command": "x"}, "my server", source=Source.PROJECT)
    approved = ServerAnswers(direct={resolution.servers[0].digest})

    assert reasons(admit(resolution, Trust.SANDBOXED, approved)) == [
        (
            "You approved it with your rights, and this session is sandboxed. To let all sessions use it, but confined, "
            "run: holdfast servers approve 'my server' --confined"
        )
    ]


@pytest.mark.promise("RES-07")
def test_declined_server_is_refused_with_the_command_to_review_it_again():
    resolution = validate_entry({"command": "x"}, source=Source.PROJECT)
    declined = ServerAnswers(declined={resolution.servers[0].digest})

    assert reasons(admit(resolution, Trust.DIRECT, declined)) == [
        "You declined it. To review it again, run: holdfast servers approve s"
    ]


@pytest.mark.parametrize(
    ("value", "used_by"),
    [
        ({"confined": True}, [*Trust]),
        ({"confined": True, "trust_level": "direct"}, [Trust.DIRECT]),
        ({"confined": True, "lifetime": "host"}, [*Trust]),
    ],
)
@pytest.mark.promise("RES-14")
def test_confined_server_of_the_users_own_is_admitted_where_its_trust_level_says_and_never_shared(
    value: dict[str, Any], used_by: list[Trust]
):
    resolution = validate_entry({"command": "x", **value})
    admitted = {trust: admit(resolution, trust).servers for trust in Trust}

    assert [trust for trust, servers in admitted.items() if servers] == used_by
    for trust in used_by:
        (found,) = confine(
            Resolution(servers=admitted[trust]), trust, ConfinePolicy(roots=("/work",))
        ).servers
        assert (found.confinement is not None, found.lifetime) == (True, Lifetime.SESSION)


@pytest.mark.promise("RES-14")
def test_confined_server_is_refused_in_a_direct_session_without_a_sandbox():
    resolution = admit(validate_entry({"command": "x", "confined": True}), Trust.DIRECT)

    confined = confine(resolution, Trust.DIRECT, ConfinePolicy(sandbox_problem="Install one."))

    assert (confined.servers, reasons(confined)) == (
        (),
        ["It may only run confined, and there is no working sandbox. Install one."],
    )


@pytest.mark.promise("RES-14")
def test_confined_remote_server_may_only_be_at_a_public_address():
    resolution = admit(validate_entry({"url": "http://10.0.0.1/mcp", "confined": True}), Trust.DIRECT)

    assert reasons(confine(resolution, Trust.DIRECT, ConfinePolicy())) == [
        (
            "It runs confined, so it may not reach 10.0.0.1: it is a private address. "
            'To allow it, add it to this list in the settings, under [servers]: reachable = ["10.0.0.1"]'
        )
    ]


# select


@pytest.mark.promise("RES-06")
@pytest.mark.promise("RES-12")
def test_restrictions_narrow_and_never_widen():
    resolution = Resolution(
        servers=(server("a"), server("b", tools=Allowlist(frozenset({"x", "y"}))), server("c"))
    )
    workspace = Restriction(imposed_by="the workspace mine", servers=Allowlist(frozenset({"a", "b", "zzz"})))
    agent = Restriction(
        imposed_by="the agent reviewer",
        servers=Allowlist(frozenset({"b", "c"})),
        tool_names=Allowlist(frozenset({"y", "z"})),
    )

    assert select(resolution, workspace, agent) == Resolution(
        servers=(server("b", tools=Allowlist(frozenset({"y"}))),),
        refusals=(
            Refusal(
                server="c",
                stage=Stage.SELECT,
                reason="It is not among the servers that the workspace mine allows.",
            ),
            Refusal(
                server="a",
                stage=Stage.SELECT,
                reason="It is not among the servers that the agent reviewer allows.",
            ),
        ),
    )
    assert select(resolution, Restriction(imposed_by="x", servers=ALLOW_ALL)) == resolution
    assert select(resolution, Restriction(imposed_by="x", servers=ALLOW_NONE)).servers == ()


@pytest.mark.promise("RES-13")
def test_workspace_overrides_variables_of_local_servers():
    local, remote = (
        server("a", transport=Stdio(command="x", env={"A": "1", "B": "2"})),
        server("b", transport=Http(url="http://x")),
    )

    resolution = select(
        Resolution(servers=(local, remote)), env_overrides={"a": {"B": "3", "C": "4"}, "b": {"D": "5"}}
    )

    assert [found.transport for found in resolution.servers] == [
        Stdio(command="x", env={"A": "1", "B": "3", "C": "4"}),
        Http(url="http://x"),
    ]


# inject


@pytest.mark.promise("CTX-01")
def test_local_servers_get_the_context_and_keep_their_variables():
    resolution = inject(
        Resolution(servers=(server("a"), server("b", transport=Stdio(command="x", env={"MINE": "1"})))),
        CONTEXT,
    )

    assert [found.transport for found in resolution.servers] == [
        Stdio(command="x", env=CONTEXT_VARS),
        Stdio(command="x", env={"MINE": "1", **CONTEXT_VARS}),
    ]


@pytest.mark.promise("CTX-02")
def test_preset_context_variables_are_overwritten_with_one_warning():
    claim = {
        "HOLDFAST_TRUST_LEVEL": "direct",
        "HOLDFAST_PARENT_SESSION_ID": "sess_x",
        "holdfast_session_id": "y",
    }

    resolution = inject(Resolution(servers=(server(transport=Stdio(command="x", env=claim)),)), CONTEXT)

    assert resolution.servers[0].transport == Stdio(command="x", env=CONTEXT_VARS)
    assert resolution.warnings == (
        SessionWarning(
            server="s",
            stage=Stage.INJECT,
            text="Its entry sets HOLDFAST_PARENT_SESSION_ID, HOLDFAST_TRUST_LEVEL, holdfast_session_id, "
            "which only the host may set. The values in the entry are ignored.",
        ),
    )


@pytest.mark.promise("CTX-03")
def test_inject_does_not_change_its_input():
    env = {"HOLDFAST_SESSION_ID": "claim", "A": "1"}
    before = Resolution(servers=(server(transport=Stdio(command="x", env=env)),))

    inject(before, CONTEXT)

    assert before == Resolution(servers=(server(transport=Stdio(command="x", env=env)),))
    assert env == {"HOLDFAST_SESSION_ID": "claim", "A": "1"}


@pytest.mark.parametrize(
    ("source", "kept"), [(Source.USER, True), (Source.PROJECT, False), (Source.CLIENT, False)]
)
def test_projects_and_clients_may_not_set_holdfasts_variables(source: Source, kept: bool):
    claim = server(source=source, transport=Stdio(command="x", env={"HOLDFAST_DATA_DIR": "/elsewhere"}))

    (injected,) = inject(Resolution(servers=(claim,)), CONTEXT).servers

    assert isinstance(injected.transport, Stdio)
    assert ("HOLDFAST_DATA_DIR" in injected.transport.env) is kept


def test_shared_server_gets_no_context_in_its_environment():
    shared = server(
        lifetime=Lifetime.HOST, transport=Stdio(command="x", env={"HOLDFAST_SESSION_ID": "claim"})
    )

    resolution = inject(Resolution(servers=(shared,)), CONTEXT)

    assert resolution.servers[0].transport == Stdio(command="x", env={"HOLDFAST_SHARED": "1"})


def test_context_header_in_an_entry_is_removed():
    remote = server(transport=Http(url="http://x", headers={"holdfast-context": "forged", "A": "b"}))

    resolution = inject(Resolution(servers=(remote,)), CONTEXT)

    assert resolution.servers[0].transport == Http(url="http://x", headers={"A": "b"})
    assert len(resolution.warnings) == 1


@pytest.mark.promise("CTX-12")
def test_aliases_are_set_and_overwrite_preset_values():
    aliases = ContextAliases(env_prefixes=("PARACHUTE",), session_variables=("AGENT_SESSION_ID",))
    claim = Stdio(command="x", env={"PARACHUTE_TRUST_LEVEL": "direct"})

    resolution = inject(Resolution(servers=(server(transport=claim),)), CONTEXT, aliases)

    assert resolution.servers[0].transport == Stdio(
        command="x",
        env={
            **CONTEXT_VARS,
            "PARACHUTE_SESSION_ID": "sess_0123456789abcdef",
            "PARACHUTE_WORKSPACE_ID": "mine",
            "PARACHUTE_TRUST_LEVEL": "sandboxed",
            "PARACHUTE_USER_ID": "me",
            "AGENT_SESSION_ID": "sess_0123456789abcdef",
        },
    )
    assert "PARACHUTE_TRUST_LEVEL" in resolution.warnings[0].text


# confine


@pytest.mark.promise("CTX-04")
def test_direct_server_gets_allowed_host_variables_and_its_own():
    policy = ConfinePolicy(environ=ENVIRON, extra_variables=("TOKEN", "HOLDFAST_SESSION_ID"))
    resolution = confine(
        Resolution(servers=(server(transport=Stdio(command="x", env={"A": "1"})),)), Trust.DIRECT, policy
    )

    assert resolution.servers == (
        server(
            transport=Stdio(
                command="x",
                env={"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", "TOKEN": "t0ken", "A": "1"},
                has_empty_folder=True,
            )
        ),
    )


@pytest.mark.promise("RES-05")
def test_local_servers_of_a_sandboxed_session_are_confined():
    policy = ConfinePolicy(
        environ=ENVIRON, roots=("/work",), quota=Quota(processes=5), extra_variables=("TOKEN",)
    )
    local = server(transport=Stdio(command="x", env={"A": "1"}, network=("x.org",)))

    resolution = confine(Resolution(servers=(local,)), Trust.SANDBOXED, policy)

    assert resolution.servers == (
        server(
            transport=Stdio(
                command="x",
                env={"PATH": "/bin", "LC_ALL": "C", "HOME": "/tmp", "TMPDIR": "/tmp", "A": "1"},
                network=("x.org",),
                has_empty_folder=True,
            ),
            confinement=Confinement(
                roots=("/work",), network=("x.org",), quota=Quota(processes=5), scripts=()
            ),
        ),
    )


@pytest.mark.promise("RES-07", "BOX-01")
def test_confined_server_of_a_project_gets_its_project_and_no_path_of_the_user():
    policy = ConfinePolicy(environ=ENVIRON, roots=("/app", "/other"), bytecode_folder="/home/ann/data")
    project = server(source=Source.PROJECT, origin="/app/.mcp.json", always_confined=True)
    direct = server(source=Source.PROJECT, origin="/app/.mcp.json")
    own = server(origin="/app/mcp.json", always_confined=True)

    resolution = confine(Resolution(servers=(project, direct, own)), Trust.DIRECT, policy)
    environments = [
        found.transport.env.get("PYTHONPYCACHEPREFIX")
        for found in resolution.servers
        if isinstance(found.transport, Stdio)
    ]

    assert [found.confinement and found.confinement.roots for found in resolution.servers] == [
        ("/app",),
        None,
        ("/app", "/other"),  # the control
    ]
    assert environments == ["/run/python-cache", "/home/ann/data", None]
    assert "/other, which was added to the session" in resolution.warnings[0].text


@pytest.mark.promise("BOX-01", "BOX-06")
@pytest.mark.parametrize(
    ("approved", "writable", "read_only"),
    [
        ("/work", (".git",), ("/work",)),
        ("/work/deep/project", (), ("/work",)),
        ("/", (), ("/work", "/other")),
        ("/workshop", (), ()),
        ("/work", (".",), ()),
    ],
)
def test_confined_server_cannot_change_a_root_with_approved_programs_unless_the_user_grants_it(
    approved: str, writable: tuple[str, ...], read_only: tuple[str, ...]
):
    policy = ConfinePolicy(
        environ=ENVIRON,
        roots=("/work", "/other"),
        protected=("/data",),
        approved_folders=frozenset({approved}),
    )
    granted = server(transport=Stdio(command="x", writable=writable))

    resolution = confine(Resolution(servers=(granted,)), Trust.SANDBOXED, policy)

    assert resolution.servers[0].confinement == Confinement(
        roots=("/work", "/other"), protected=("/data",), read_only=read_only, writable=writable, scripts=()
    )
    assert [warning.text.split(" but ")[0] for warning in resolution.warnings] == [
        f"It can read {root}" for root in read_only
    ]


@pytest.mark.promise("BOX-01")
def test_writable_names_are_granted_by_operator_and_user_only():
    entry = {"command": "x", "writable": [".git"]}
    own, project = validate_entry(entry), validate_entry(entry, source=Source.PROJECT)

    assert own.servers[0].transport == Stdio(command="x", writable=(".git",))
    assert project.servers[0].transport == Stdio(command="x")
    assert "writable" in project.warnings[0].text
    assert reasons(validate_entry({"command": "x", "writable": ["src"]}))[0].startswith(
        "writable[0] is not one of ., .git, "
    )


@pytest.mark.parametrize("own", ["/home/me/.local/share/holdfast", "/home/me", "/home"])
def test_confined_server_never_sees_holdfasts_own_files(own: str):
    policy = ConfinePolicy(roots=("/home/me",), protected=("/etc/holdfast", own))
    resolution = Resolution(servers=(server(),))

    assert reasons(confine(resolution, Trust.SANDBOXED, policy)) == [
        f"/home/me overlaps with Holdfast's own files ({own}). Open the session in another folder (in a shell: --cwd FOLDER)."
    ]
    assert confine(resolution, Trust.DIRECT, policy).refusals == ()


@pytest.mark.promise("BOX-04")
def test_local_servers_of_a_sandboxed_session_are_refused_without_a_sandbox():
    policy = ConfinePolicy(sandbox_problem="Install bubblewrap.")
    resolution = Resolution(servers=(server("local"), server("remote", transport=Http(url="https://x.org"))))

    assert confine(resolution, Trust.SANDBOXED, policy) == Resolution(
        servers=(server("remote", transport=Http(url="https://x.org")),),
        refusals=(
            Refusal(
                server="local",
                stage=Stage.CONFINE,
                reason="This session is sandboxed, and there is no working sandbox. Install bubblewrap.",
            ),
        ),
    )
    assert confine(resolution, Trust.DIRECT, policy).refusals == ()


@pytest.mark.parametrize(
    ("source", "trust", "is_resolved"),
    [
        (Source.USER, Trust.DIRECT, True),
        (Source.USER, Trust.SANDBOXED, False),
        (Source.CLIENT, Trust.DIRECT, False),
        (Source.CLIENT, Trust.SANDBOXED, False),
    ],
)
@pytest.mark.promise("RES-05")
def test_sandboxed_sessions_and_client_servers_may_not_reach_private_addresses(
    source: Source, trust: Trust, is_resolved: bool
):
    resolution = Resolution(servers=(server(source=source, transport=Http(url="http://10.0.0.1:8000/mcp")),))

    assert bool(confine(resolution, trust, ConfinePolicy()).servers) is is_resolved
    assert confine(resolution, trust, ConfinePolicy(allowed_private_hosts=("10.0.0.1",))) == resolution


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.promise("RES-05")
def test_only_a_direct_session_may_reach_loopback_for_its_client(host: str):
    resolution = Resolution(
        servers=(server(source=Source.CLIENT, transport=Http(url=f"http://{host}:8000/mcp")),)
    )

    assert confine(resolution, Trust.DIRECT, ConfinePolicy()) == resolution
    assert confine(resolution, Trust.SANDBOXED, ConfinePolicy()).servers == ()


@pytest.mark.promise("CTX-14")
def test_inject_is_fast_and_scales_linearly():
    def milliseconds(count: int) -> float:
        servers = tuple(
            server(f"s{number}", transport=Stdio(command="x", env={"A": "1"})) for number in range(count)
        )
        return 1000 * least_cpu_seconds(lambda: inject(Resolution(servers=servers), CONTEXT), 20)

    ten, thousand = milliseconds(10), milliseconds(1000)

    assert ten < 1
    assert thousand < 300 * ten
