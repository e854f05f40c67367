"""Choices of the QPU path, on the rehearsal device: chain strength, noise, size of blocks. No clock is read here."""

import warnings

from benchmarks.timing import print_table

import numpy as np

from annealfit import AnnealedClassifier, Method, RandomConvFeatures, load_dataset
from annealfit.models.baselines import solve_logistic
from annealfit.training.objectives import LinearHead
from annealfit.problems.bounds import lower_bounds
from annealfit.samplers import BlockSampler, MockQPU, QPUSampler, Sampler


class Digits:
    def __init__(self, n_features: int) -> None:
        data = load_dataset("digits", seed=42)
        features = RandomConvFeatures(n_filters=-(-n_features // 9), random_state=42)
        self.X, self.y = features.fit_transform(data.X_train)[:, :n_features], data.y_train
        self.X_test, self.y_test = features.transform(data.X_test)[:, :n_features], data.y_test
        head = LinearHead.of_arrays(self.X, self.y, 10, 1e-3)
        self.optimum = head.at(solve_logistic(self.X, self.y, 1e-3).weights).loss

    def train(self, sampler: Sampler, bits: int, iterations: int) -> list[str]:
        classifier = AnnealedClassifier(bits=bits, max_iter=iterations, sampler=sampler, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.fit(self.X, self.y)
        history = classifier.history_
        return [
            f"{history[-1]['loss'] / self.optimum:.4f}",
            f"{classifier.score(self.X_test, self.y_test):.1%}",
            f"{np.mean([row['chain_breaks'] for row in history]):.1%}",
            str(sum(row["calls"] for row in history)),
            f"{sum(row['access_seconds'] for row in history):.2f}",
        ]

    def calls_to(self, multiple: float, seed: int, method: Method) -> str:
        """Calls of the device until the loss is so many times the optimum's."""
        sampler = QPUSampler(MockQPU(seed=seed), num_reads=50)
        classifier = AnnealedClassifier(bits=2, max_iter=60, sampler=sampler, random_state=seed, method=method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = classifier.fit(self.X, self.y).history_
        calls = np.cumsum([row["calls"] for row in history])
        near = [row["loss"] <= multiple * self.optimum for row in history]
        return str(calls[near.index(True)]) if any(near) else f"> {calls[-1]}"


RULES = {
    "raw, rules of 0.1.0": Method("bound", "raw", "line_search", "adaptive"),
    "centred, rules of 0.1.0": Method("bound", "centred", "line_search", "adaptive"),
    "raw, the defaults otherwise": Method(coordinates="raw"),
    "the defaults": Method(),
}


def run_calls() -> None:
    small = Digits(18)
    rows = [[name, *(small.calls_to(1.003, seed, method) for seed in (0, 1))] for name, method in RULES.items()]
    print_table(
        "Calls to 1.003 × the optimum: 2 bits, P16 with published noise, 50 reads", ["rules", "seed 0", "seed 1"], rows
    )


REACHED = ["loss / optimum", "test", "chains broken", "calls", "access s"]


def run(*, quick: bool) -> None:
    small = Digits(18)
    problems = AnnealedClassifier(bits=2, random_state=0).problems(small.X, small.y)
    bound = lower_bounds(problems).sum()
    rows = []
    for prefactor in (0.5, 1.0, 1.414, 2.0, 3.0, 4.0):
        sampler = QPUSampler(MockQPU(seed=3), chain_prefactor=prefactor)
        answers = sampler.solve(problems, range(len(problems)))
        best = sum(answer.best_energy for answer in answers) - bound
        mean = sum(answer.energies.mean() for answer in answers) - bound
        broken = sampler.summarise(answers)["chain_breaks"]
        rows.append([f"{prefactor:g}", f"{best:.4f}", f"{mean:.4f}", f"{broken:.1%}"])
    print_table(
        "Chain strength: digits, d = 18, 2 bits, first iteration, P16 with published noise, 100 reads",
        ["prefactor", "best above bound", "mean above bound", "chains broken"],
        rows,
    )
    iterations = 10 if quick else 40
    rows = [
        [
            str(bits),
            f"{prefactor:g}",
            *small.train(QPUSampler(MockQPU(seed=3), chain_prefactor=prefactor), bits, iterations),
        ]
        for bits in (1, 2)
        for prefactor in (1.414, 2.0, 3.0)
    ]
    print_table(f"Training with it, {iterations} iterations", ["bits", "prefactor", *REACHED], rows)
    rows = [
        [
            f"{factor:g}",
            *small.train(
                QPUSampler(MockQPU(seed=3, field_noise=0.025 * factor, coupling_noise=0.015 * factor)), 2, iterations
            ),
        ]
        for factor in (0, 1, 4, 16)
    ]
    print_table("Analog error, as a multiple of the published one, 2 bits", ["error ×", *REACHED], rows)
    large = Digits(128)
    rows = [
        [
            str(size),
            *large.train(BlockSampler(QPUSampler(MockQPU(seed=3), num_reads=25), size), 2, 3 if quick else 10),
        ]
        for size in (20, 38, 76, 180)
    ]
    print_table("Blocks: d = 128, 2 bits, 258 variables on a 180-clique", ["variables", *REACHED], rows)
    if not quick:
        run_calls()
        run_larger()


def run_larger() -> None:
    row = Digits(512).train(BlockSampler(QPUSampler(MockQPU(seed=3), num_reads=25), 38), 2, 8)
    print_table("d = 512, 2 bits, 1026 variables, blocks of 38, eight iterations", REACHED, [row])


if __name__ == "__main__":
    run(quick=False)
