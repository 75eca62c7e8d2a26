"""A group of commands whose help says each one's line to its end."""

import click


class Group(click.Group):
    """Lists its commands with their whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; none of their lines is cut off."""
        names = self.list_commands(ctx)
        commands = ((name, self.get_command(ctx, name)) for name in names)
        rows = [(name, command.get_short_help_str(1000)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
