"""What is true of every sampler: settings, descriptions, copies; and how answers are asked for and checked."""

from __future__ import annotations

import copy
import json
import pickle

import dimod
import numpy as np
import pytest
from dimod import TruncateComposite
from dwave.samplers import RandomSampler, SimulatedAnnealingSampler, TabuSampler
from random_problems import random_problem
from sklearn.base import clone

from annealfit._support.description import describe, without_neutral
from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems, group_by_curvature
from annealfit.samplers import (
    BlockSampler,
    DenseAnnealingSampler,
    DimodSampler,
    ExactSolver,
    LatticeSolver,
    LevelAnnealer,
    MockQPU,
    QPUSampler,
    RoundedSampler,
    Sampler,
    Samples,
    SimulatedAnnealer,
)
from annealfit.samplers.catalogue import make_sampler, restore_sampler
from annealfit.samplers.protocol import solve_checked


class Scaled(dimod.Sampler):
    """A dimod sampler with settings of its own, and one that it says nothing of."""

    properties: dict = {}  # noqa: RUF012
    parameters: dict = {}  # noqa: RUF012

    def __init__(self, scale=1.0):
        self.scale, self._calls = scale, 0

    def sample(self, bqm, **parameters):
        self._calls += 1
        return dimod.ExactSolver().sample(bqm)


def qpu(**settings):
    return QPUSampler(MockQPU("Z12", num_sweeps=10, seed=3), num_reads=5, backoff_seconds=0.0, **settings)


SAMPLERS = {
    "levels": lambda: LevelAnnealer(num_reads=3),
    "native": lambda: SimulatedAnnealer(num_sweeps=20, num_reads=3, beta_range=(0.1, 50.0)),
    "schedule": lambda: SimulatedAnnealer(
        num_sweeps=3, beta_schedule_type="custom", beta_schedule=(0.1, 1.0, 10.0), precision="double"
    ),
    "rounded": RoundedSampler,
    "exact": ExactSolver,
    "lattice": lambda: LatticeSolver(max_nodes=10**6, num_threads=1),
    "dwave": lambda: DimodSampler(num_reads=2, num_sweeps=10),
    "tabu": lambda: DimodSampler(TabuSampler(), timeout=5),
    "openjij": lambda: make_sampler("openjij", num_sweeps=10),
    "blocks": lambda: BlockSampler(SimulatedAnnealer(num_sweeps=30), max_variables=4, sweeps=2),
    "qpu": qpu,
}


@pytest.fixture(params=SAMPLERS)
def sampler(request):
    return SAMPLERS[request.param]()


def problems(count=3):
    generator = np.random.default_rng(0)
    curvature = random_problem(0, 4, 2).shared_curvature
    return Problems((curvature,), generator.normal(size=(count, 4)), np.array([0.5, 0.2, 1.0])[:count], bits=2)


def test_settings_make_the_same_sampler_again(sampler):
    settings = sampler.get_params(deep=False)
    assert type(sampler)(**settings).describe() == sampler.describe()
    assert set(settings) <= set(sampler.get_params(deep=True))


def test_a_description_is_plain_data_and_makes_the_sampler_again(sampler):
    description = json.loads(json.dumps(sampler.describe()))
    assert restore_sampler(description).describe() == sampler.describe()
    assert description["type"] == type(sampler).__name__


def test_a_clone_is_the_sampler_itself_which_never_changes(sampler):
    assert clone(sampler) is sampler


def test_set_params_returns_a_changed_copy(sampler):
    before = sampler.describe()
    settings = {name: value for name, value in sampler.get_params(deep=False).items() if type(value) is int}
    settings = {name: value for name, value in settings.items() if "sweeps" not in name}  # schedules depend on them
    for name, value in settings.items():
        changed = sampler.set_params(**{name: value + 1})
        assert changed is not sampler
        assert changed.get_params()[name] == value + 1
    assert sampler.describe() == before
    with pytest.raises(InvalidInputError):
        sampler.set_params(no_such_setting=3)
    assert sampler.describe() == before


# A device's chance is its own, and tabu search stops by the clock.
@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"qpu", "tabu"}))
def test_a_sequence_of_problems_and_a_list_of_them_get_the_same_answers(name):
    sampler, stacked = SAMPLERS[name](), problems()
    one, other = sampler.solve(stacked, [1, 2, 3]), sampler.solve(list(stacked), [1, 2, 3])
    apart = [sampler.sample(problem, seed=seed) for problem, seed in zip(stacked, (1, 2, 3), strict=True)]
    for first, second, third in zip(one, other, apart, strict=True):
        np.testing.assert_array_equal(first.bits, second.bits)
        np.testing.assert_array_equal(first.bits, third.bits)  # nor does it matter what the others are


def test_it_travels_to_other_processes(sampler):
    assert pickle.loads(pickle.dumps(sampler)).describe() == sampler.describe()


def test_what_cannot_change_an_answer_is_not_described():
    identity = lambda sampler: without_neutral(sampler.describe())  # noqa: E731
    assert identity(SimulatedAnnealer(num_threads=1)) == identity(SimulatedAnnealer(num_threads=2))
    assert identity(SimulatedAnnealer(num_sweeps=1)) != identity(SimulatedAnnealer(num_sweeps=2))
    assert identity(qpu(retries=1, max_access_seconds=5.0)) == identity(qpu())
    assert identity(qpu(polish=True)) != identity(qpu())
    other_chance = QPUSampler(MockQPU("Z12", num_sweeps=10, seed=9, faults=0.5), num_reads=5, backoff_seconds=0.0)
    assert identity(other_chance) == identity(qpu())
    other_chip = QPUSampler(MockQPU("Z12", num_sweeps=10, defects=0.02), num_reads=5)
    assert identity(other_chip) != identity(qpu())


def test_what_cannot_change_an_answer_comes_back_with_a_model_too():
    device = MockQPU("Z12", num_sweeps=10, seed=9, faults={"timeout": 0.2})
    restored = restore_sampler(QPUSampler(device, num_reads=5, max_access_seconds=50.0, retries=7).describe())
    assert (restored.max_access_seconds, restored.retries) == (50.0, 7)
    assert (restored.device.seed, restored.device.fault_rates) == (9, {"timeout": 0.2})
    assert restore_sampler(SimulatedAnnealer(num_threads=1).describe()).num_threads == 1


@pytest.mark.parametrize("child", [DenseAnnealingSampler(), dimod.ExactSolver(), RandomSampler()])
def test_dimod_samplers_without_settings_come_back(child):
    assert type(restore_sampler(DimodSampler(child).describe()).child) is type(child)


def test_the_settings_of_a_wrapped_sampler_are_described():
    one, same, other = (DimodSampler(Scaled(scale)) for scale in (1.0, 1.0, 2.0))
    one.sample(random_problem(0, 2, 1))
    assert one.describe() == same.describe() != other.describe()
    assert one.describe()["child"]["scale"] == 1.0
    composites = [
        TruncateComposite(SimulatedAnnealingSampler(), 1),
        TruncateComposite(TabuSampler(), 1),
        TruncateComposite(TabuSampler(), 5),
    ]
    assert len({json.dumps(DimodSampler(composite).describe()) for composite in composites}) == 3
    with pytest.raises(InvalidInputError, match="cannot be made from its description"):
        restore_sampler(one.describe())


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"type": "os.system"},
        {"type": "SimulatedAnnealer", "num_sweeps": -1},
        {"type": "SimulatedAnnealer", "command": "rm"},
        {"type": "DimodSampler", "child": {"type": "subprocess.Popen"}},
        {"type": "BlockSampler", "max_variables": 3},
        {"type": "MockQPU"},
        {"type": "QPUSampler"},
        {"type": "QPUSampler", "device": None},
        {"type": "BlockSampler", "child": {"type": "Sampler"}, "max_variables": 3},
        {"type": "QPUSampler", "device": "Advantage_system6"},
    ],
)
def test_only_known_samplers_are_made_from_descriptions(description):
    with pytest.raises(InvalidInputError):
        restore_sampler(description)


def test_copies_share_the_budget_and_what_was_spent_stays_spent():
    device = MockQPU("Z12", num_sweeps=5)
    sampler = QPUSampler(device, num_reads=5, max_access_seconds=10.0, backoff_seconds=0.0)
    copied = sampler.set_params(num_reads=6)
    copied.solve(problems(1), [0])
    assert sampler.access_seconds == copied.access_seconds > 0
    spent = sampler.access_seconds
    changed = copied.set_params(num_reads=7)
    assert (changed.num_reads, copied.num_reads, sampler.num_reads) == (7, 6, 5)
    assert changed.access_seconds == spent
    assert changed._tiles is sampler._tiles  # nothing is embedded again


def test_a_settings_sampler_inside_another_is_reached_by_its_path():
    sampler = BlockSampler(BlockSampler(SimulatedAnnealer(), 8), 20)
    inner = sampler.child.child
    changed = sampler.set_params(child__child__num_reads=3, max_variables=10)
    assert (changed.child.child.num_reads, changed.max_variables) == (3, 10)
    assert (inner.num_reads, sampler.max_variables) == (1, 20)
    with pytest.raises(InvalidInputError, match="has no value 'max_variables' whose num_reads could be set"):
        sampler.set_params(max_variables__num_reads=3)


def test_beta_means_the_same_to_every_annealer():
    """Mean energies at one temperature, given in units of energy, of our chain and of D-Wave's, within five errors."""
    problem = random_problem(5, 6, 2, 0.5)
    beta = 3.0 / problem.shared_curvature.diagonal.mean()
    settings = {"num_reads": 2000, "num_sweeps": 50, "beta_range": (beta, beta)}
    found = [s.sample(problem, seed=1).energies for s in (SimulatedAnnealer(**settings), DimodSampler(**settings))]
    means, errors = zip(*((e.mean(), e.std() / np.sqrt(len(e))) for e in found), strict=True)
    assert abs(means[0] - means[1]) < 5 * np.hypot(*errors)
    hot = SimulatedAnnealer(**settings | {"beta_range": (beta / 100, beta / 100)}).sample(problem, seed=1).energies
    assert hot.mean() > means[0] + 20 * errors[0]
    scaled = [s(**settings, normalize=True).sample(problem, seed=1).energies for s in (SimulatedAnnealer, DimodSampler)]
    assert abs(scaled[0].mean() - scaled[1].mean()) < 5 * np.hypot(*(e.std() / np.sqrt(2000) for e in scaled))


def test_a_class_in_place_of_a_sampler():
    with pytest.raises(InvalidInputError, match="sampler is the class SimulatedAnnealingSampler; pass an object of it"):
        DimodSampler(SimulatedAnnealingSampler)


def test_parameters_that_a_sampler_says_nothing_of():
    problem = random_problem(0, 2, 1)
    with pytest.raises(InvalidInputError, match=r"no parameter tune; it takes none that it names \(strict=False"):
        DimodSampler(Scaled(), tune=3)
    assert DimodSampler(Scaled(), strict=False, tune=3).sample(problem).failure is None
    openjij = pytest.importorskip("openjij")
    annealer = DimodSampler(openjij.SASampler(), num_sweeps=20, num_reads=2)  # declares beta_min and beta_max only
    np.testing.assert_array_equal(annealer.sample(problem, seed=3).bits, annealer.sample(problem, seed=3).bits)


def test_a_users_own_sampler_has_settings_without_doing_anything():
    class Mine(Sampler):
        def __init__(self, effort=3, rule=len):
            self.effort, self.rule = effort, rule

        def solve(self, problems, seeds):
            return ExactSolver().solve(problems, seeds)

    mine = Mine()
    assert mine.get_params() == {"effort": 3, "rule": len}
    mine = mine.set_params(effort=5)
    assert mine.effort == 5
    assert repr(copy.copy(mine)) == "Mine(effort=5, rule=<built-in function len>)"
    described = mine.describe()
    assert described["type"].endswith("Mine")
    assert (described["effort"], described["rule"]) == (5, "builtins.len")


def test_nothing_that_may_be_a_secret_is_described():
    class Client:
        def __init__(self):
            self.token, self.endpoint, self._api_key = "DEV-1234", "somewhere", ["DEV-1234"]

    class Remote(Scaled):
        def __init__(self):
            super().__init__()
            self.client, self.config = Client(), {"token": "DEV-1234", "Authorization": "DEV-1234", "region": "eu"}

    described = DimodSampler(Remote()).describe()
    assert "DEV-1234" not in json.dumps(described)
    assert described["child"]["client"]["endpoint"] == "somewhere"
    assert described["child"]["config"] == {"region": "eu"}


def test_an_argument_that_is_kept_under_another_name_cannot_be_changed_silently():
    class Hiding(Sampler):
        def __init__(self, effort=1, secret=2):
            self.effort, self.hidden = effort, secret

        def solve(self, problems, seeds):
            return ExactSolver().solve(problems, seeds)

    with pytest.raises(InvalidInputError, match="keeps its argument secret under another name"):
        Hiding(secret=5).set_params(effort=3)


def test_descriptions_of_all_kinds_of_values():
    assert describe({"a": np.int64(3), 1: (True, None)}) == {"a": 3, "1": [True, None]}
    assert describe(np.arange(3.0)) == [0.0, 1.0, 2.0]
    large = describe(np.zeros(2000))
    assert (large["shape"], len(large["sha256"])) == ([2000], 64)
    assert describe(np.ones(2000)) != large
    assert describe(Scaled(2.0)) == {"type": f"{__name__}.Scaled", "scale": 2.0}


def test_problems_are_a_sequence_and_groups_of_them_share_a_metric():
    stacked = problems()
    assert len(stacked) == 3
    assert [problem.encoding.range for problem in stacked] == [0.5, 0.2, 1.0]
    assert stacked[-1].gradient.tolist() == stacked.gradients[2].tolist()
    assert all(problem.shared_curvature is stacked.shared_curvature for problem in stacked)
    assert [p.encoding.range for p in stacked[1:]] == [0.2, 1.0]
    other = random_problem(9, 3, 1)
    mixed = [stacked[0], other, stacked[2]]
    groups = {tuple(positions): len(group) for positions, group in group_by_curvature(mixed)}
    assert groups == {(0, 2): 2, (1,): 1}
    curvatures = (stacked.shared_curvature, Curvature(np.eye(4)), stacked.shared_curvature)
    own = Problems(curvatures, stacked.gradients, stacked.ranges, bits=2)
    assert [tuple(positions) for positions, _ in group_by_curvature(own)] == [(0, 2), (1,)]
    bits = np.random.default_rng(1).integers(0, 2, size=(3, 4, 2), dtype=np.uint8)
    for many in (stacked, own):
        updates = many.decode(bits)
        expected = [problem.energy(own_bits) for problem, own_bits in zip(many, bits, strict=True)]
        np.testing.assert_allclose(many.energies(updates), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda p: None, "answered with None; expected a list of Samples"),
        (lambda p: [1, 2, 3], "expected a list of Samples"),
        (lambda p: [Samples.failed(p[0], "lost")], "answered 1 of 3 problems"),
        (lambda p: [Samples(np.zeros((1, 4, 3), np.uint8), np.zeros(1))] * 3, r"expected \(reads, 4, 2\)"),
        (lambda p: [Samples(np.zeros((0, 4, 2), np.uint8), np.zeros(0))] * 3, "at least one read"),
        (lambda p: [Samples(np.full((1, 4, 2), 7, np.uint8), np.zeros(1))] * 3, "other than 0 and 1"),
        (lambda p: [Samples(np.zeros((2, 4, 2), np.uint8), np.zeros(5))] * 3, "2 reads and 5 energies"),
        (lambda p: [Samples(np.zeros((1, 4, 2), np.uint8), np.full(1, np.nan))] * 3, "not finite"),
    ],
)
def test_answers_are_checked(answer, message):
    class Odd(Sampler):
        def solve(self, problems, seeds):
            return answer(problems)

    with pytest.raises(SamplerError, match=message):
        solve_checked(Odd(), problems(), [1, 2, 3])
