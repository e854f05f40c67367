"""Draw the pictures of docs/gallery.md again: run its programs where the pictures are kept."""

import os
import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Run the page's Python blocks one after another."""
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    os.chdir(DOCS / "images")
    exec(compile(program, "gallery.md", "exec"), {})


if __name__ == "__main__":
    main()
