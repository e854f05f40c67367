"""Filters trained by QUBO: accuracy, against Adam, how time and memory grow. The loss falls in every run, or it fails.

    python -m benchmarks.convolution digits          seeds 42–46, 2 and 4 filters, 1 to 3 bits, frozen and Adam beside
    python -m benchmarks.convolution NETWORK [...]   one of NETWORKS, a line per round; with --adam, Adam after it
    python -m benchmarks.convolution choices         the defaults varied one at a time
    python -m benchmarks.convolution growth          time of a round and memory against images and filters

Seconds are the processor's, of all threads, beside those of the clock: a machine may be shared. What measuring on test
images takes is on neither. Adam's are those of its steps alone, and beside them with the loss on all images after
every epoch, which tells when it is as low as QUBO's. Adam has as many epochs as it needs and no more, since its rate
falls to 0 at the end. For the accuracy of a shared machine's clock see docs/large.md.
"""

import argparse
import itertools
import time
import tracemalloc
import warnings

import numpy as np

from annealfit import AnnealedConvNet, load_dataset
from annealfit.models.baselines import train_adam
from annealfit.data import convolution as network_rows
from annealfit.training import FilterMethod
from annealfit.studies.execute import fit_frozen_network, fit_network_by_adam, learned, measure

SEEDS = range(42, 47)
SETTINGS = {"random_state": 42, "patience": None}
GROWING = {"filter_method__first_images": 2000}

# Data, network, and phases of (rounds, settings): each goes on with the weights of the one before.
_GREY = {"n_filters": 16, "kernel_size": 5, "pool_size": 3, "regularization": 1e-4}
_DEEP = {"n_filters": (16, 32), "kernel_size": (5, 3), "pool_size": 2, "regularization": 1e-4}
_COLOUR = {"regularization": 1e-3, "standardize": "pixels"}
NETWORKS = {
    "mnist-16": ({"name": "mnist"}, _GREY, [(12, GROWING)]),
    "mnist-16-all": ({"name": "mnist"}, _GREY, [(10, {})]),
    "mnist-16-32": ({"name": "mnist"}, _DEEP, [(12, GROWING)]),
    "mnist-16-32-shifts": (
        {"name": "mnist"},
        _DEEP,
        [(11, GROWING), (6, {"shifts": 1, "filter_method__head_steps": 3, "filter_method__first_images": None})],
    ),
    "fashion-16": ({"name": "fashion_mnist"}, _GREY, [(12, GROWING)]),
    "kmnist-16": ({"name": "kmnist"}, _GREY, [(12, GROWING)]),
    "kmnist-16-32": ({"name": "kmnist"}, _DEEP, [(12, GROWING)]),
    "cifar10-16": ({"name": "cifar10", "color": True}, {**_GREY, "pool_size": 4, **_COLOUR}, [(8, {})]),
    "cifar10-16-32": ({"name": "cifar10", "color": True}, {**_DEEP, **_COLOUR}, [(4, {})]),
}


class Clock:
    """Seconds of the processor and of the clock since it was made, without those inside `stopped`."""

    def __init__(self):
        self.began = self._now()

    @staticmethod
    def _now():
        return np.array([time.process_time(), time.perf_counter()])

    @property
    def seconds(self):
        return self._now() - self.began

    def stopped(self, function):
        before = self._now()
        found = function()
        self.began += self._now() - before
        return found


def check_descent(history):
    """The loss never rises at a step; more images have another loss."""
    rises = [row for row in history if row["loss_change"] > 0]
    for before, after in itertools.pairwise(history):
        if before.get("images") == after.get("images") and after["loss"] > before["loss"]:
            rises.append(after)
    assert not rises, f"the loss rose at {rises[0]}"


def images_of(name, color=False, count="all"):
    data = load_dataset(name, size=None, color=color, n_train=count, n_test="all")
    return data.X_train.astype(np.float32), data.y_train, data.X_test.astype(np.float32), data.y_test


def train_network(which, seeds, with_adam, rate):
    """A line per round; then Adam, from the same weights on the same loss, if asked for."""
    source, settings, phases = NETWORKS[which]
    X, y, X_test, y_test = images_of(**source)
    print(f"{which}: {settings}, {len(X)} images of {X.shape[1:]}", flush=True)
    small = AnnealedConvNet(**SETTINGS).set_params(**settings)
    train_adam(*small.loss_and_start(X[:600], y[:600]), epochs=1)
    fit_rounds(small.set_params(**phases[0][1]), 2, X[:3000], y[:3000])  # compiles
    ratios = []
    for seed in seeds:
        net = AnnealedConvNet(**{**SETTINGS, "random_state": seed}).set_params(**settings)
        on_test = None if "standardize" in settings else net.loss_and_start(X_test, y_test)[0]
        clock = Clock()

        def tell(iteration, net=net, on_test=on_test, clock=clock):
            row = iteration.row
            if row["layer"] != "conv1":  # the last of a round
                return
            (cpu, wall), images = clock.seconds, row.get("images", len(y) * (1 + 4 * net.shifts))
            right = clock.stopped(lambda: on_test.at(iteration.state.weights).accuracy) if on_test else np.nan
            print(f"round {row['round']:3}  {images:6} images  CPU {cpu:7.2f} s  wall {wall:7.1f} s  "
                  f"loss {row['loss']:.5f}  train {row['accuracy']:.2%}  test {right:.2%}", flush=True)  # fmt: skip

        for rounds, more in phases:
            fit_rounds(net.set_params(**more, callbacks=[tell]), rounds, X, y)
            check_descent(net.history_)
            net.set_params(warm_start=True)
        cpu, wall = clock.seconds
        print(
            f"QUBO, seed {seed}: test {net.score(X_test, y_test):.2%}, CPU {cpu:.2f} s, wall {wall:.1f} s", flush=True
        )
        if with_adam:
            same = AnnealedConvNet(**{**SETTINGS, "random_state": seed}).set_params(**{**settings, **phases[-1][1]})
            ratios.append(cpu / np.array(time_of_adam(same, net.history_[-1]["loss"], X, y, on_test, rate)))
    if ratios:
        means, spreads = np.mean(ratios, axis=0), np.std(ratios, axis=0)
        print(f"QUBO's processor seconds to Adam's: {means[0]:.2f} ± {spreads[0]:.2f}, with Adam's loss after every "
              f"epoch {means[1]:.2f} ± {spreads[1]:.2f}; {len(ratios)} seeds")  # fmt: skip


def fit_rounds(net, rounds, X, y):
    method = net.filter_method or FilterMethod()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it ends after so many rounds, as asked
        net.set_params(max_iter=rounds * (method.head_steps + len(net.trained_layers()))).fit(X, y)


def time_of_adam(net, target, X, y, on_test, rate):
    """The processor's seconds of the shortest training by Adam that ends at the target or below, without and with the
    loss on all images after every epoch."""
    loss, weights = net.loss_and_start(X, y)
    evaluate = loss.at
    for epochs in itertools.count(1):
        clock, whole = Clock(), Clock()
        loss.at = lambda weights, clock=clock: clock.stopped(lambda: evaluate(weights))
        found = train_adam(loss, weights, rate=rate, epochs=epochs, batch_size=50, seed=net.random_state)
        (steps, _), (both, _), reached = clock.seconds, whole.seconds, found.history[-1]["loss"]
        print(f"Adam, {epochs} epochs: loss {reached:.5f}, CPU {steps:.2f} s, with the loss after every epoch "
              f"{both:.2f} s, test {on_test.at(found.weights).accuracy:.2%}", flush=True)  # fmt: skip
        if reached <= target:
            return steps, both


def digits():
    from benchmarks.timing import print_table  # here: it keeps everything to one thread, which the others are not

    rows = []
    for filters in (2, 4):
        found = {"frozen": [], "1 bit": [], "2 bits": [], "3 bits": [], "Adam": []}
        for seed in SEEDS:
            data = load_dataset("digits", seed=seed)
            net = AnnealedConvNet(n_filters=filters, random_state=seed, patience=None)
            for bits, name in zip((1, 2, 3), list(found)[1:4], strict=True):
                trained = learned(net.set_params(bits=bits).fit(data.X_train, data.y_train))
                check_descent(trained.history)
                found[name].append(measure(data, name, trained))
            found["frozen"].append(measure(data, "frozen", fit_frozen_network(data, net)))
            found["Adam"].append(measure(data, "Adam", fit_network_by_adam(data, net)))
        for name, records in found.items():
            tests = [100 * record.test["accuracy"] for record in records]
            rows.append([str(filters), name, f"{np.mean(tests):.1f}", f"{min(tests):.1f}–{max(tests):.1f}",
                         f"{100 * np.mean([record.train['accuracy'] for record in records]):.1f}",
                         f"{np.mean([record.loss for record in records]):.4f}",
                         f"{np.mean([record.seconds for record in records]):.1f}"])  # fmt: skip
    headings = ["filters", "method", "test %", "least–most", "train %", "loss", "s"]
    print_table("Digits 8×8, seeds 42–46, 200 turns, λ = 0.001", headings, rows)


def choices():
    """The defaults of a network varied one at a time, and rates of Adam: digits, 4 filters, three seeds."""
    from benchmarks.timing import print_table

    varied = [
        {},
        {"filter_method__damping": "none"},
        {"filter_method__damping": 0.1},
        {"filter_method__damping": 1.0},
        {"filter_method__curvature": "joint"},
        {"method__acceptance": "line_search"},
        {"filter_method__head_steps": 1},
        {"filter_method__head_steps": 3},
        {"filter_method__head_steps": 12},
    ]
    rows = []
    for changed in varied:
        losses, tests, began = [], [], time.process_time()
        for seed in SEEDS[:3]:
            data = load_dataset("digits", seed=seed)
            net = AnnealedConvNet(random_state=seed, patience=None).set_params(**changed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                net.fit(data.X_train, data.y_train)
            check_descent(net.history_)
            losses.append(net.history_[-1]["loss"])
            tests.append(net.score(data.X_test, data.y_test))
        name = ", ".join(f"{key}={value!r}" for key, value in changed.items()) or "defaults"
        seconds = (time.process_time() - began) / 3
        rows.append([name, f"{np.mean(losses):.4f}", f"{100 * np.mean(tests):.1f}", f"{seconds:.1f}"])
    for rate in (0.003, 0.01, 0.02, 0.03):
        losses, tests, began = [], [], time.process_time()
        for seed in SEEDS[:3]:
            data = load_dataset("digits", seed=seed)
            loss, weights = AnnealedConvNet(random_state=seed).loss_and_start(data.X_train, data.y_train)
            on_test, _ = AnnealedConvNet(random_state=seed).loss_and_start(data.X_test, data.y_test)
            found = train_adam(loss, weights, rate=rate, epochs=100, batch_size=50, seed=seed)
            losses.append(found.history[-1]["loss"])
            tests.append(on_test.at(found.weights).accuracy)
        seconds = (time.process_time() - began) / 3
        rows.append([f"Adam, rate {rate}", f"{np.mean(losses):.4f}", f"{100 * np.mean(tests):.1f}", f"{seconds:.1f}"])
    print_table("Digits 8×8, 4 filters, seeds 42–44, 200 turns or 100 epochs", ["", "loss", "test %", "CPU s"], rows)


_ONE_ROUND = {
    "regularization": 1e-4,
    "filter_method__head_steps": 2,
    "max_iter": 3,
    "filter_method__curvature_rows": 500,
}


def growth():
    """Exponents of a power law, fitted to the processor's time of a round; and the most memory that was ever used."""
    from benchmarks.timing import print_table

    data = load_dataset("mnist", size=None, n_train=16000, n_test=1000)
    X = data.X_train.astype(np.float32)
    table, slopes = [], {}
    for kind, cases in {
        "images": [(count, 16) for count in (2000, 4000, 8000, 16000)],
        "filters": [(4000, count) for count in (8, 16, 32, 64)],
    }.items():
        seconds = []
        for count, filters in cases:
            net = AnnealedConvNet(filters, 5, 4, **SETTINGS).set_params(**_ONE_ROUND)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                net.fit(X[:600], data.y_train[:600])  # compiles
                best = np.inf
                for _ in range(2):
                    began = time.process_time()
                    net.fit(X[:count], data.y_train[:count])
                    best = min(best, time.process_time() - began)
            check_descent(net.history_)
            seconds.append(best)
            table.append([kind, str(count), str(filters), f"{best:.2f}"])
        varied = [case[0 if kind == "images" else 1] for case in cases]
        slopes[kind] = np.polyfit(np.log(varied), np.log(seconds), 1)[0]
    print_table("MNIST 28×28, 5×5 filters, pool 4: a round of two turns of the head and one of the filters",
                ["varied", "images", "filters", "CPU s"], table)  # fmt: skip
    print("Fitted exponents: " + ", ".join(f"{kind} {slope:.2f}" for kind, slope in slopes.items()))
    table = [[str(count), *(f"{_peak(X[:count], data.y_train[:count], kept) / 2**20:.0f}" for kept in (2**30, 0))]
            for count in (4000, 16000)]  # fmt: skip
    print_table("Memory at most beside the images, in MiB, of the same round with 16 filters",
                ["images", "features kept", "worked out at every pass"], table)  # fmt: skip


def _peak(X, y, kept):
    """The most bytes that were allocated during a fit."""
    usual, network_rows.KEPT_BYTES = network_rows.KEPT_BYTES, kept
    net = AnnealedConvNet(16, 5, 4, **SETTINGS).set_params(**_ONE_ROUND)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net.fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        network_rows.KEPT_BYTES = usual
        tracemalloc.stop()


def run(quick=False):
    digits()
    if not quick:
        growth()


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolution", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=["digits", "choices", "growth", *NETWORKS])
    parser.add_argument("--adam", action="store_true", help="train by Adam too, from the same weights")
    parser.add_argument("--rate", type=float, default=0.006, help="of Adam; chosen on kmnist-16 and fashion-16")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42])
    given = parser.parse_args()
    if given.what in NETWORKS:
        train_network(given.what, given.seeds, given.adam, given.rate)
    else:
        {"digits": digits, "choices": choices, "growth": growth}[given.what]()


if __name__ == "__main__":
    main()
