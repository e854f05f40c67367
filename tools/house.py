"""The house at a glance: rooms and who uses whom, the longest files and functions, names that two things share.

python tools/house.py          print it (make house)
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = "annealfit"
LONG_FILE, LONG_FUNCTION = 300, 60
SHOWN = 10


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def room_of(module: str) -> str:
    """The package or module right below ours; the rooms of `samplers` each count by themselves."""
    parts = module.split(".")
    return ".".join(parts[1:3]) if parts[1:2] == ["samplers"] else (parts[1] if len(parts) > 1 else PACKAGE)


def imports_of(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """Modules of the package that a module imports when it is run; not what only a type checker reads."""
    for node in _run_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == PACKAGE:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in inner)


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _run_nodes(child)


def functions() -> Iterator[tuple[int, str]]:
    """Length and place of every function."""
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                yield length, f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"


def shared_names(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Public names that are defined at the top of more than one module."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                names = []
            for name in names:
                if not name.startswith("_"):
                    places[name].append(module)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def main() -> None:
    """Print all of it."""
    trees = modules()
    used: dict[str, set[str]] = defaultdict(set)
    lines: dict[str, int] = defaultdict(int)
    for module, tree in trees.items():
        used[room_of(module)] |= {room_of(name) for name in imports_of(tree, set(trees))} - {room_of(module)}
        lines[room_of(module)] += tree.body[-1].end_lineno or 0 if tree.body else 0
    rooms = sorted(used)
    users = {room: sorted(other for other in rooms if room in used[other]) for room in rooms}
    print(f"{'room':22s} {'lines':>6s} {'used by':>8s} {'uses':>5s}")
    for room in sorted(rooms, key=lambda room: -len(users[room])):
        print(
            f"{room:22s} {lines[room]:6d} {len(users[room]):8d} {len(used[room]):5d}  {', '.join(sorted(used[room]))}"
        )
    files = sorted(((len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(SOURCE)))
                    for path in (SOURCE / PACKAGE).rglob("*.py")), reverse=True)  # fmt: skip
    for title, found, limit in (
        ("file", files, LONG_FILE),
        ("function", sorted(functions(), reverse=True), LONG_FUNCTION),
    ):
        above = sum(length > limit for length, _ in found)
        print(f"\nThe longest of {len(found)} {title}s; {above} of more than {limit} lines")
        for length, place in found[: max(SHOWN, above)]:
            print(f"{length:6d}  {place}")
    print("\nNames that two modules share")
    for name, places in shared_names(trees).items():
        print(f"  {name}: {', '.join(places)}")


if __name__ == "__main__":
    main()
