"""What a server is given that nobody else may read."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from holdfast.model.json import Json
from holdfast.model.mask import name_of, secrets_in, tells
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """The values that a server gets under telling names: in its environment, its arguments, its headers."""
    match spec.transport:
        case Stdio(env=env, args=args):
            return (*spec.secrets, *secrets_in(env), *_in_arguments(args))
        case Http(headers=headers) | Sse(headers=headers):
            return (*spec.secrets, *secrets_in(headers))
        case InProcess():
            return ()


def secrets_written(value: Json) -> Iterator[str]:
    """The same of a server as somebody wrote it down, whatever became of it. What names a variable is no secret itself."""
    match value:
        case dict():
            for key, inner in value.items():
                if not isinstance(inner, str):
                    yield from secrets_written(inner)
                elif not _names_a_variable(inner):
                    yield from secrets_in({name_of(key, value): inner})
        case list():
            arguments = [inner for inner in value if isinstance(inner, str)]
            yield from (given for given in _in_arguments(arguments) if not _names_a_variable(given))
            for inner in value:
                yield from secrets_written(inner)
        case _:
            pass


def _names_a_variable(value: str) -> bool:
    return "${" in value


def _in_arguments(args: Sequence[str]) -> Iterator[str]:
    """`--api-key=VALUE`, and `--api-key VALUE`."""
    for option, after in pairwise((*args, "")):
        name, given, value = option.partition("=")
        if name.startswith("-") and tells(name):
            yield value if given else after
