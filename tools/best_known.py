"""The lowest energies of the catalogue's instances, searched for and put on record where they are better or new.

python tools/best_known.py [--again] ["PATTERN" …]

Without --again only those that are not on record yet, with the coefficients they have now.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from annealfit._support.files import write_json
from annealfit.problems.importing import digest
from annealfit.studies.instances import BestKnown, find_best, make_problem, select_instances
from annealfit.studies.instances.known_energies import RECORD_FILE


def main(arguments: list[str]) -> None:
    """Search for each instance in turn; the record is written after each."""
    again, patterns = "--again" in arguments, [word for word in arguments if word != "--again"]
    record = json.loads(RECORD_FILE.read_text(encoding="utf-8")) if RECORD_FILE.exists() else {}
    for instance in select_instances(patterns):
        problem = make_problem(instance)
        before = BestKnown(**record[instance.name]) if instance.name in record else None
        if before and before.sha256 == digest(problem.to_qubo()) and (before.proven or not again):
            continue
        found = find_best(problem)
        same = before is not None and before.sha256 == found.sha256
        if not same or found.proven or (before is not None and found.energy < before.energy):
            record[instance.name] = asdict(found)
            write_json(RECORD_FILE, record)
        print(f"{instance.name}: {found.energy!r}{', proven' if found.proven else ''} ({found.found_by['type']})")


if __name__ == "__main__":
    main(sys.argv[1:])
