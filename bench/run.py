"""The project's benchmarks: `python bench/run.py NAME` measures one figure, `--list` names them.

Progress goes to stderr; the last line on stdout is one JSON object: name, value, unit, bar, moonshot, better, bar_met,
spread, detail. Ratios are taken within one run on one machine, since machines are shared and differ. `--quick` takes a
tenth of the work, to see that a benchmark runs; its figures say nothing, and bar_met is null.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.figures import FIGURES
from bench.measure import note


def main(argv: list[str]) -> int:
    """Measure what the command line names; 0 when it ran, whether or not the bar was met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="*", help="figures to measure; none: all")
    parser.add_argument("--list", action="store_true", help="name the figures")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    given = parser.parse_args(argv)
    if given.list:
        for known in FIGURES.values():
            print(f"{known.name:16} {known.what}")
        return 0
    for name in given.name or list(FIGURES):
        figure = FIGURES.get(name)
        if figure is None:
            print(f"no figure {name!r}: one of {', '.join(FIGURES)}", file=sys.stderr)
            return 2
        note(f"{name}: {figure.what}")
        print(json.dumps(figure.take(quick=given.quick)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
