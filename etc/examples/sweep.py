"""One member of a hyper-parameter sweep, and the search for the best: the body of sweep.sbatch. Plain Python.

Member `i` of 200 trains a small model with the `i`-th pair of learning rate (20 of them) and momentum (10) and
writes RESULTS/i.json, whole or not at all. `--best RESULTS` reads them all and prints the best pair.

Exit codes: 0 done; 1 the results cannot be read or written; 2 wrong options.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path

LEARNING_RATES = [0.002 * 1.35**step for step in range(20)]
MOMENTA = [step / 10 for step in range(10)]
MEMBERS = len(LEARNING_RATES) * len(MOMENTA)
STEPS = 60


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sweep.py", description="Try one setting, or find the best one.")
    parser.add_argument("--member", type=int, help=f"which setting to try, 0 to {MEMBERS - 1}")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the result is written")
    parser.add_argument("--best", type=Path, metavar="RESULTS", help="print the best of the results there")
    asked = parser.parse_args(argv)
    if (asked.member is None) == (asked.best is None):
        parser.error("give either --member or --best")
    if asked.member is not None and not 0 <= asked.member < MEMBERS:
        parser.error(f"--member must be from 0 to {MEMBERS - 1}, not {asked.member}")
    try:
        return best(asked.best) if asked.best else try_setting(asked.member, asked.results)
    except (OSError, ValueError, KeyError) as error:
        print(f"sweep.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def try_setting(member: int, results: Path) -> int:
    learning_rate = LEARNING_RATES[member % len(LEARNING_RATES)]
    momentum = MOMENTA[member // len(LEARNING_RATES)]
    loss = trained_loss(learning_rate, momentum)
    results.mkdir(parents=True, exist_ok=True)
    target = results / f"{member}.json"
    draft = results / f".{member}.{os.getpid()}"
    draft.write_text(json.dumps({"learning_rate": learning_rate, "momentum": momentum, "loss": loss}))
    draft.replace(target)
    print(f"member {member}: learning rate {learning_rate:.4f}, momentum {momentum:.1f}: loss {loss:.6g}")
    return 0


def trained_loss(learning_rate: float, momentum: float) -> float:
    """Fit y = 3x - 2 to noisy samples and give the mean squared error in the end; a run that diverges gives 1e9."""
    draw = random.Random(1)
    samples = [(x, 3 * x - 2 + draw.gauss(0, 0.1)) for x in (draw.uniform(-1, 1) for _ in range(200))]
    slope = offset = slope_speed = offset_speed = 0.0
    for _ in range(STEPS):
        errors = [(slope * x + offset - y, x) for x, y in samples]
        slope_speed = momentum * slope_speed - learning_rate * 2 * sum(e * x for e, x in errors) / len(samples)
        offset_speed = momentum * offset_speed - learning_rate * 2 * sum(e for e, _ in errors) / len(samples)
        slope, offset = slope + slope_speed, offset + offset_speed
    return min(1e9, sum((slope * x + offset - y) ** 2 for x, y in samples) / len(samples))


def best(results: Path) -> int:
    tried = [json.loads(path.read_text()) for path in results.glob("*.json")]
    if not tried:
        raise ValueError(f"no results in {results}")
    winner = min(tried, key=lambda result: float(result["loss"]))
    print(
        f"best of {len(tried)}: learning rate {winner['learning_rate']:.4f}, momentum {winner['momentum']:.1f},"
        f" loss {winner['loss']:.6g}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
