"""The catalogue, the problems it stands for, the record of best energies, and the files."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets import DATASETS, MissingDataError, is_available
from annealfit.problems import importing as exported
from annealfit.samplers import ExactSolver
from annealfit.studies import instances as library
from annealfit.studies.instances import (
    INSTANCES,
    RECORD_FILE,
    best_known,
    best_known_for,
    find_instance,
    make_problem,
    parse_bits,
    require_data,
    select_instances,
    write_instance,
)

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("best_known", ROOT / "tools" / "best_known.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

SMALL = "digits-d18-k1-centred-first-c0"


def test_the_catalogue_covers_what_it_promises():
    features = [instance.features for instance in INSTANCES]
    assert len({instance.name for instance in INSTANCES}) == len(INSTANCES)
    assert {f.dataset for f in features} == set(DATASETS)
    assert {18, 36, 72, 128, 256, 512} <= {f.n_features for f in features}
    assert {1, 2, 3, 5, 10, 20} <= {instance.bits for instance in INSTANCES}
    assert {(instance.coordinates, instance.stage) for instance in INSTANCES} == {
        (coordinates, stage) for coordinates in ("raw", "centred") for stage in ("first", "late")
    }


def test_selection_by_name():
    assert select_instances() == INSTANCES
    chosen = select_instances(["digits-d18-k3-*-first-c8", SMALL])
    assert [i.name for i in chosen] == [SMALL, "digits-d18-k3-raw-first-c8", "digits-d18-k3-centred-first-c8"]
    with pytest.raises(InvalidInputError, match="no instance is called 'cats-"):
        select_instances([SMALL, "cats-*"])
    with pytest.raises(InvalidInputError, match=f"did you mean {SMALL}"):
        find_instance("digits-d18-k1-centered-first-c0")


def test_the_record_has_every_instance_and_no_other():
    assert set(json.loads(RECORD_FILE.read_text())) == {instance.name for instance in INSTANCES}
    for instance in INSTANCES:
        known = best_known(instance)
        assert known.energy < 0 or instance.bits == 1  # better than leaving the weights alone, which 1 bit cannot
        assert len(known.bits) == instance.n_variables
        assert set(known.bits) <= {"0", "1"}
        assert known.found_by["type"] == "LatticeSolver" or not known.proven
        assert known.proven or 1 <= known.reached <= known.searches


@pytest.mark.parametrize("name", [*("digits-d18-k20-raw-late-c0", "digits-d36-k2-centred-late-c0", SMALL),
                                  "digits-svm-n80-k2-c0", "digits-boltzmann-n62-k1-c0",
                                  *(f"{data}-d18-k1-raw-first-c0" for data in DATASETS)])  # fmt: skip
@pytest.mark.filterwarnings("ignore::annealfit.data.datasets.DataWarning")
def test_an_instance_is_the_one_on_record(name):
    instance = find_instance(name)
    if not is_available(instance.features.dataset):
        pytest.skip(f"{instance.features.dataset} is not there: set ANNEALFIT_DATA")
    problem, known = make_problem(instance), best_known(instance)
    assert problem.n_variables == instance.n_variables
    assert problem.n_couplings == known.couplings
    assert exported.digest(problem.to_qubo()) == known.sha256
    assert problem.energy(parse_bits(known.bits)) == pytest.approx(known.energy, rel=1e-12)


def test_a_proven_energy_is_that_of_brute_force():
    for stage in ("first", "late"):
        instance = find_instance(f"digits-d18-k1-raw-{stage}-c0")
        brute = ExactSolver().sample(make_problem(instance)).best_energy
        assert best_known(instance).proven
        assert best_known(instance).energy == pytest.approx(brute, rel=1e-9)


def test_another_process_with_more_threads_makes_the_same():
    program = (
        "from annealfit.studies.instances import find_instance, make_problem\n"
        "from annealfit.problems.importing import digest\n"
        "print(digest(make_problem(find_instance('digits-d18-k3-raw-late-c3')).to_qubo()))"
    )
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, **threads}
    )
    assert result.stdout.strip() == best_known(find_instance("digits-d18-k3-raw-late-c3")).sha256


@pytest.mark.parametrize("coordinates", ["raw", "centred"])
def test_last_bits_of_the_features_do_not_matter(monkeypatch, coordinates):
    instance = find_instance(f"digits-d18-k2-{coordinates}-late-c0")
    X, *others = library.training_features(instance.features)
    dust = 1 + 1e-15 * np.random.default_rng(5).uniform(-1, 1, X.shape)
    monkeypatch.setattr(library, "training_features", lambda features: (X * dust, *others))
    monkeypatch.setattr(library, "_curvature", library._curvature.__wrapped__)
    assert exported.digest(make_problem(instance).to_qubo()) == best_known(instance).sha256


@pytest.mark.parametrize("coordinates", ["raw", "centred"])
def test_a_first_instance_is_the_trainings_first_problem(coordinates):
    instance = find_instance(f"digits-d36-k2-{coordinates}-first-c0")
    X, y, _ = library.training_features(instance.features)
    first = library.make_classifier_of(instance).problems(X, y)[0]
    made = make_problem(instance)
    np.testing.assert_allclose(made.curvature, first.curvature, atol=2**-30 * np.abs(first.curvature).max())
    np.testing.assert_allclose(made.gradient, first.gradient, atol=2**-30 * np.abs(first.gradient).max())


def test_a_search_finds_what_is_on_record():
    instance = find_instance("digits-d18-k3-centred-first-c0")
    found, known = tool.find_best(make_problem(instance)), best_known(instance)
    assert found.proven
    assert (found.bits, found.sha256, found.couplings) == (known.bits, known.sha256, known.couplings)


def test_the_search_of_an_unproven_record_finds_it_again(monkeypatch):
    monkeypatch.setattr(tool, "PROOF_WORK", 1e3)  # a few nodes
    instance = find_instance("digits-d18-k5-raw-late-c0")
    problem, known = make_problem(instance), best_known(instance)
    found = tool.find_best(problem)
    assert (found.proven, found.reached, found.searches) == (False, known.reached, known.searches)
    assert found.energy == problem.energy(parse_bits(found.bits)) == pytest.approx(known.energy, rel=1e-12)


def test_other_coefficients_keep_the_answer_and_lose_the_proof():
    instance = find_instance(SMALL)
    problem = make_problem(find_instance("digits-d18-k1-centred-late-c0"))  # as if this machine had made it so
    known = best_known_for(instance, problem)
    assert not known.proven
    assert known.energy == problem.energy(parse_bits(best_known(instance).bits))


def test_files_and_their_sidecar(tmp_path):
    instance = find_instance(SMALL)
    formats = ["bqm", "bqpjson", "coo", "ising", "npz", "qs", "qubo", "sparse"]
    sidecar = write_instance(instance, tmp_path, formats)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{SMALL}.{end}" for end in (*formats, "json"))
    assert sidecar == json.loads((tmp_path / f"{SMALL}.json").read_text())
    wanted = {"dataset": "digits", "seed": 42, "d": 18, "K": 1, "coordinates": "centred", "stage": "first", "class": 0}
    assert sidecar.items() >= wanted.items()
    assert sidecar["is_the_published_one"]
    bits = parse_bits(sidecar["best_known"]["bits"])
    for file in sidecar["files"]:
        quadratic, offset = exported.read(tmp_path / file["file"])
        assert bits @ quadratic @ bits + offset == pytest.approx(sidecar["best_known"]["energy"], rel=1e-9)
        assert (file["note"] is None) == (file["format"] in ("bqm", "bqpjson", "npz"))
        if file["note"] is not None:
            assert repr(abs(file["offset"])) in file["note"]
        if file["format"] != "ising":
            assert exported.digest((quadratic, offset)) == sidecar["sha256"]
            assert np.count_nonzero(np.triu(quadratic, 1)) == sidecar["couplings"]


def test_data_that_are_not_here(monkeypatch, tmp_path):
    monkeypatch.setenv("ANNEALFIT_DATA", str(tmp_path))
    with pytest.raises(
        MissingDataError, match=r"instances of mnist, kmnist .*datasets fetch kmnist`, or choose others"
    ):
        require_data(select_instances(["digits-d18-k1-*", "mnist-d18-*", "kmnist-d18-*"]))
