"""Run all benchmarks, or those of the named modules. Prints a table and writes build/bench.json."""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path

import benchmarks
from benchmarks.result import Result

REPORT = Path(__file__).resolve().parent.parent / "build" / "bench.json"
COLUMNS = ("name", "ours", "peer", "unit", "ratio", "goal", "met", "peer is")


def main() -> None:
    results: list[Result] = []
    for name in sys.argv[1:] or (found.name for found in pkgutil.iter_modules(benchmarks.__path__)):
        if name == "__main__":
            continue
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "results"):
            results += module.results()
    show(results)
    save(results)
    sys.exit(0 if all(result.met for result in results) else 1)


def show(results: Iterable[Result]) -> None:
    rows = [COLUMNS, *(format_row(result) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def format_row(result: Result) -> tuple[str, ...]:
    met = ("yes" if result.met else "NO") if result.goal else ""
    figures = (format_figure(result.ours), format_figure(result.peer), result.unit, f"{result.ratio:.3g}")
    return (result.name, *figures, result.goal, met, result.peer_name)


def format_figure(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"


def save(results: Iterable[Result]) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps([as_json(result) for result in results], indent=2) + "\n")


def as_json(result: Result) -> dict[str, str | float | bool]:
    return {
        "name": result.name,
        "ours": result.ours,
        "peer": result.peer,
        "peer_name": result.peer_name,
        "unit": result.unit,
        "ratio": result.ratio,
        "goal": result.goal,
        "met": result.met,
    }


if __name__ == "__main__":
    main()
