"""Known vulnerabilities of the pinned dependencies, by pip-audit; without it or a network, a word and success.

python tools/audit.py
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NO_NETWORK = ("ConnectionError", "NameResolutionError", "Max retries exceeded", "Temporary failure", "timed out")


def main() -> int:
    """The exit status of the audit; 0 where there could be none."""
    if importlib.util.find_spec("pip_audit") is None:
        print("audit skipped: pip-audit is not installed (pip install pip-audit)")
        return 0
    command = [sys.executable, "-m", "pip_audit", "--requirement", ROOT / "constraints.txt", "--no-deps"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode and any(word in found.stderr for word in _NO_NETWORK):
        print("audit skipped: the database of vulnerabilities cannot be reached")
        return 0
    print(found.stdout + found.stderr)
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
