import pytest

from annealfit._support.errors import InvalidInputError
from annealfit.studies import paper_tables as paper
from annealfit.studies.records import RunSpec


def test_ids_are_unique_and_do_not_depend_on_how_a_spec_was_made():
    specs = [spec for preset in ("literal", "matched", "annealfit") for spec in paper.runs_of(paper.TABLES, preset)]
    assert len({spec.id for spec in specs}) == len(set(specs))
    assert all(RunSpec.from_json(spec.to_json()).id == spec.id for spec in specs)


def test_the_benchmark_is_five_data_sets_seeds_and_methods():
    runs = paper.runs_of(["benchmark", "recall", "times"], "matched")
    assert len(runs) == 125
    assert {run.label for run in runs} == {"classical", "qubo_5", "qubo_10", "qubo_15", "qubo_20"}
    assert {run.num_sweeps for run in runs} == {None}  # the preset's 100


def test_runs_have_the_published_images_unless_the_stated_are_asked_for():
    tables = ["digits", "benchmark"]
    assert {spec.images for spec in paper.runs_of(tables, "matched")} == {"published"}
    assert {spec.images for spec in paper.runs_of(tables, "matched", images="stated")} == {"stated"}
    assert {spec.images for spec in paper.runs_of(["filters"], "matched")} == {"stated"}


def test_ids_of_stated_images_are_those_of_earlier_versions():
    stated = RunSpec("digits", "classical", 42)
    assert stated.id == "digits-classical-seed42-22691644d6f6"
    assert (stated.images, RunSpec.from_json({"dataset": "digits", "method": "classical", "seed": 42})) == (
        "stated",
        stated,
    )
    published = RunSpec("digits", "qubo", 42, "matched", 20, images="published")
    assert published.id.startswith("digits-qubo_20-matched-published-seed42-")
    assert published.to_json()["images"] == "published"


def test_a_spec_makes_the_papers_classifier():
    clf = RunSpec("digits", "qubo", 7, "matched", 10, num_sweeps=1000, update_range=0.25, step=0.5).classifier()
    method = clf.method
    assert (clf.bits, clf.random_state, method.update_range, method.step, clf.max_iter) == (10, 7, 0.25, 0.5, 1000)
    assert clf.sampler.num_sweeps == 1000
    assert clf.sampler.beta_range == (0.01, 3.0 * 2**7)


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "magic"},
        {"method": "qubo"},
        {"method": "qubo", "preset": "matched"},
        {"method": "qubo", "preset": "x"},
        {"method": "classical", "images": "real"},
    ],
)
def test_bad_specs(fields):
    with pytest.raises(InvalidInputError):
        RunSpec(dataset="digits", seed=0, **fields)


def test_unknown_tables_are_named():
    with pytest.raises(InvalidInputError, match="'benchmark', 'digits'"):
        paper.runs_of(["table 3"], "matched")


def test_the_papers_numbers_are_at_hand():
    assert len(paper.paper_table("benchmark")) == 175
    assert {row["method"] for row in paper.paper_table("digits")} == {"classical", *(f"qubo_{k}" for k in paper.BITS)}


def test_names_of_data_sets_are_no_paths():
    assert RunSpec("x/../../logo", "classical", 42).id.startswith("x_logo-classical-seed42-")
