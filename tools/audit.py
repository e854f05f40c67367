"""Known vulnerabilities of the pinned dependencies, by pip-audit; without it or a network, a word and success.

python tools/audit.py
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 120  # without a network pip-audit asks for every package in turn, for an hour


def main() -> int:
    """1 where a vulnerability is known, or pip-audit failed; 0 where none is, or nobody could be asked."""
    if importlib.util.find_spec("pip_audit") is None:
        print("audit skipped: pip-audit is not installed (pip install pip-audit)")
        return 0
    pins = ["--requirement", str(ROOT / "constraints.txt"), "--no-deps", "--disable-pip"]
    command = [sys.executable, "-m", "pip_audit", *pins, "--progress-spinner", "off", "--format", "json"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"audit skipped: the database of vulnerabilities did not answer in {MOST_SECONDS} seconds")
        return 0
    if not found.stdout.strip():
        return _without_answer(found.stderr)
    return judge(json.loads(found.stdout)["dependencies"])


def judge(packages: list[dict[str, Any]]) -> int:
    """Say what was found. A package that nobody knows is no package without vulnerabilities.

    >>> judge([{"name": "numpy", "skip_reason": "not found"}])
    audit skipped: the database of vulnerabilities knows none of the 1 packages
    0
    """
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        print(f"audit skipped: the database of vulnerabilities knows none of the {len(packages)} packages")
        return 0
    faults = [(package, fault) for package in known for fault in package["vulns"]]
    for package, fault in faults:
        mended = ", ".join(fault["fix_versions"]) or "no version"
        print(f"{package['name']} {package['version']}: {fault['id']}, mended in {mended}")
    print(f"{len(known)} of {len(packages)} packages looked up, {len(faults)} vulnerabilities known")
    return int(bool(faults))


def _without_answer(said: str) -> int:
    """Without a network there is no answer; any other reason is a failure."""
    if any(word in said for word in ("Connection", "NameResolution", "Max retries", "Temporary failure", "timed out")):
        print("audit skipped: the database of vulnerabilities cannot be reached")
        return 0
    print(said)
    return 1


if __name__ == "__main__":
    sys.exit(main())
