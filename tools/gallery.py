"""Draw the pictures of notebooks/gallery.ipynb again where the pages have them: in docs/images."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Run the notebook's cells one after another."""
    cells = json.loads((ROOT / "notebooks" / "gallery.ipynb").read_text(encoding="utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    os.chdir(ROOT / "docs" / "images")
    exec(compile(program, "gallery.ipynb", "exec"), {})


if __name__ == "__main__":
    main()
