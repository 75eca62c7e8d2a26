"""Subclasses of `click.Group`: with lazy imports, with printable usage errors, and with untruncated help."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click


class LazyCommand:
    """Where to import a command from (`module:attribute`), and its line in the help."""

    def __init__(self, *, target: str, help: str) -> None:
        self.target = target
        self.help = help


class LazyGroup(click.Group):
    """A group that lists its commands from a table, and imports only the command that is called."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        from importlib import import_module

        module, _, attribute = self.lazy[cmd_name].target.partition(":")
        command: object = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.lazy[cmd_name].target} is not a command.")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. For an unknown name, suggest the most similar command."""
        name = args[0]
        if name not in self.lazy and not ctx.resilient_parsing and not name.startswith("-"):
            from difflib import get_close_matches

            close = self._find_in_groups(ctx, name) or get_close_matches(name, self.lazy, n=1)
            fix = (
                f"Did you mean {close[0]!r}?" if close else f"`{ctx.command_path} --help` lists all commands."
            )
            ctx.fail(f"No such command {name!r}. {fix}")
        return super().resolve_command(ctx, args)

    def _find_in_groups(self, ctx: click.Context, name: str) -> list[str]:
        """The command with this name in the first group that has one, such as [`holdfast sessions replay`]; empty if no group has one."""
        groups = ((group, self.get_command(ctx, group)) for group in self.lazy)
        return [
            f"{ctx.command_path} {group} {name}"
            for group, command in groups
            if isinstance(command, click.Group) and name in command.list_commands(ctx)
        ][:1]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self.lazy.items()])


class AppGroup(LazyGroup):
    """The group `holdfast`. It replaces control characters in usage errors, because these quote the user's arguments."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _printable_usage_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _printable_usage_errors():
            return super().invoke(ctx)


@contextmanager
def _printable_usage_errors() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        from holdfast.cli.terminal_text import replace_unprintable

        text = "\n".join(map(replace_unprintable, error.message.split("\n")))
        # click declares `message` as Final, but reads it only when it prints the error.
        error.message = text  # pyright: ignore[reportAttributeAccessIssue]
        raise


class FullHelpGroup(click.Group):
    """A group that shows the whole first sentence of each command in its help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        commands = ((name, self.get_command(ctx, name)) for name in names)
        rows = [(name, command.get_short_help_str(1000)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
