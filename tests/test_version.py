"""The version is written once; what has to repeat it says the same."""

import re
from pathlib import Path

from annealfit import __version__

ROOT = Path(__file__).parent.parent


def test_citation_and_changelog_have_the_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## ([\d.]+)", changelog, re.MULTILINE)[1] == __version__


def test_the_package_takes_it_from_there():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/annealfit/__init__.py"


def test_the_conda_recipe_has_the_version_and_the_dependencies():
    import tomllib

    import yaml

    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert recipe["context"]["version"] == __version__
    python, *others = (line.replace(" ", "") for line in recipe["requirements"]["run"])
    assert python == f"python{project['requires-python']}"
    assert others == project["dependencies"]
    assert recipe["about"]["summary"] == project["description"]
