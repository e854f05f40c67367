"""The whole campaign (`make torture`): bounded, seeded, a table in the end and in docs/trust.md.

    python tests/torture [--seed 42] [--only files,processes] [--share 1.0] [--results FILE] [--write]

Each campaign runs in a process of its own, two side by side. Attacks on files and data may take 1 GB more than that has
when it starts. Results are kept part by part: started again, with the same sources, a run that was interrupted goes on
where it was.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from campaigns import CAMPAIGNS, identity, rows_of, run_campaign
from outcomes import Tally

PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- torture: begin -->", "<!-- torture: end -->"
COLUMNS = {
    "tried": "tried",
    "clean": "clean errors",
    "right": "accepted and right",
    "wrong": "accepted and wrong",
    "raw": "raw tracebacks",
    "crashes": "crashes",
    "hangs": "hangs",
    "large": "above 1 GB",
}


def table(tallies: list[Tally]) -> str:
    lines = [f"| campaign | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    lines += [
        f"| {tally.campaign} | " + " | ".join(f"{getattr(tally, name):,}" for name in COLUMNS) + " |"
        for tally in tallies
    ]
    total = Tally("**all**")
    for tally in tallies:
        total.merge(tally)
    lines.append(f"| {total.campaign} | " + " | ".join(f"**{getattr(total, name):,}**" for name in COLUMNS) + " |")
    return "\n".join(lines)


def short_table(tallies: list[Tally]) -> str:
    """A row for each kind of attack, and one column for all that must not be."""
    kinds: dict[str, Tally] = {}
    for tally in tallies:
        kind = tally.campaign.partition(":")[0]
        kinds.setdefault(kind, Tally("")).merge(tally)
    lines = ["| attack on | tried | refused | accepted and right | anything else |", "|---|---|---|---|---|"]
    for kind, tally in kinds.items():
        bad = tally.tried - tally.clean - tally.right
        lines.append(f"| {kind} | {tally.tried:,} | {tally.clean:,} | {tally.right:,} | {bad:,} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--share", type=float, default=1.0, help="of the attacks")
    parser.add_argument("--only", default=",".join(CAMPAIGNS), help="campaigns, with commas between them, or none")
    parser.add_argument("--jobs", type=int, default=2, help="campaigns side by side")
    parser.add_argument("--write", action="store_true", help="write the table into docs/trust.md")
    parser.add_argument("--results", type=Path, default=Path("build/torture.jsonl"), help="where results are kept")
    options = parser.parse_args()
    results, run = options.results, identity(options.seed, options.share)
    results.parent.mkdir(parents=True, exist_ok=True)
    names, context = [name for name in options.only.split(",") if name], multiprocessing.get_context("spawn")

    def attack(name: str) -> str | None:
        process = context.Process(target=run_campaign, args=(name, run, results))
        process.start()
        process.join()
        return f"{name}: exit status {process.exitcode}" if process.exitcode else None

    with ThreadPoolExecutor(options.jobs) as pool:
        crashed = [*filter(None, pool.map(attack, names))]
    rows = [row for row in rows_of(results) if run.items() <= row.items()]
    order = {name: place for place, name in enumerate(CAMPAIGNS)}
    rows.sort(key=lambda row: (order[row["part"].split()[0]], int(row["part"].split()[1])))
    tallies = [Tally(**{name: row[name] for name in (field.name for field in fields(Tally))}) for row in rows]
    text = table(tallies)
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        said = f"Seed {options.seed}, {'in full' if options.share == 1 else f'{options.share:.0%} of the attacks'}."
        PAGE.write_text(f"{before}{BEGIN}\n{short_table(tallies)}\n\n{said}\n{END}{after}", encoding="utf-8")
    for line in crashed:
        print(line, file=sys.stderr)
    return int(bool(crashed) or not tallies or not all(tally.is_clean for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
