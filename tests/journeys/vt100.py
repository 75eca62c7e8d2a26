"""The part of a VT100 terminal that a chat uses: text, colours, relative cursor movements and erasing."""

import codecs
import re
from itertools import groupby

_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;?]*)(?P<command>[A-Za-z])"
    r"|\x1b[=>]"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f])"
    r"|(?P<text>[^\x00-\x1f]+)"
)
RESET = "\x1b[0m"
_Cell = tuple[str, str]
_BLANK: _Cell = (" ", "")


class Screen:
    """What a terminal of unlimited size shows. It never scrolls and never wraps a line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unread = ""
        self._rows: list[list[_Cell]] = [[]]
        self._row = self._column = 0
        self._style = ""

    @property
    def text(self) -> str:
        return "\n".join("".join(character for character, _ in row) for row in self._rows)

    @property
    def ansi(self) -> str:
        """The text with its colours."""
        return "\n".join(
            "".join(
                f"{style}{''.join(character for character, _ in run)}{RESET if style else ''}"
                for style, run in groupby(row, key=lambda cell: cell[1])
            )
            for row in self._rows
        )

    def feed(self, data: bytes) -> None:
        self._unread += self._decoder.decode(data)
        at = 0
        while token := _TOKEN.match(self._unread, at):
            at = token.end()
            if text := token["text"]:
                self._write(text)
            elif control := token["control"]:
                self._control(control)
            elif command := token["command"]:
                self._command(command, token["arguments"])
        self._unread = self._unread[at:]

    def _write(self, text: str) -> None:
        cells = [(character, self._style) for character in text]
        self._rows[self._row][self._column : self._column + len(cells)] = cells
        self._column += len(cells)

    def _control(self, control: str) -> None:
        match control:
            case "\r":
                self._move(self._row, 0)
            case "\n":
                self._move(self._row + 1, self._column)
            case "\b":
                self._move(self._row, self._column - 1)
            case _:
                pass

    def _command(self, command: str, arguments: str) -> None:
        count = int(arguments) if arguments.isdigit() else 1
        match command:
            case "A":
                self._move(self._row - count, self._column)
            case "B":
                self._move(self._row + count, self._column)
            case "C":
                self._move(self._row, self._column + count)
            case "D":
                self._move(self._row, self._column - count)
            case "J":  # to the end of the screen
                del self._rows[self._row + 1 :]
                del self._rows[self._row][self._column :]
            case "K":  # to the end of the line
                del self._rows[self._row][self._column :]
            case "m":
                self._style = "" if arguments in ("", "0") else f"{self._style}\x1b[{arguments}m"
            case _:
                pass

    def _move(self, row: int, column: int) -> None:
        self._row, self._column = max(row, 0), max(column, 0)
        self._rows += [[] for _ in range(self._row + 1 - len(self._rows))]
        line = self._rows[self._row]
        line += [_BLANK] * (self._column - len(line))
