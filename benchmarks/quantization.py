"""Low-bit weights: nearest, GPTQ, descent and annealing beside each other: `python -m benchmarks.quantization`.

perceptron    784–128–64–10 on MNIST by scikit-learn, three networks: the error of every layer and the accuracy at
              1 bit, ternary, 2, 3 and 4 bits
convolutions  the same of a small convolution network
unseen        one network: the first layer's error on images that it was not calibrated on
neighbour     Fashion-MNIST, EMNIST and CIFAR-10 (grey): beside simulated annealing on the formulation that rounds
              every weight up or down (Subiñas et al.)
loss          MNIST, Fashion-MNIST and KMNIST, and convolutions on MNIST: layers along the network's loss beside their
              own errors, by the divergence of the network's answers on the test images
wheels        networks from PyPI wheels in the folder `--networks`, if named: divergence on rows that nothing was
              chosen on, and sizes
time          a layer of 784×128 at 2 bits, and dwave-samplers on the same problems

Errors are squared errors of a layer's outputs, relative to their variance, on 2,000 calibration images; all methods
see the same inputs, those that the layers before, quantised by annealing, produce. Accuracies are of all test images,
with every layer quantised by the method alone.
"""

from benchmarks.timing import print_table

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import QuadraticProblem
from annealfit.problems.problem import Problems
from annealfit.quantization import GPTQ, Annealed, Descent, Grid, InputMoments, quantize_layer, quantize_network
from annealfit.quantization.layer_problem import Layer, LayerProblem, Rounding, to_problems
from annealfit.quantization.calibration import batches_of
from annealfit.quantization.comparison import OPPONENTS, Compared, by_onnxruntime
from annealfit.quantization.onnx_graph import OnnxGraph
from annealfit.quantization.sensitivity import Fidelity, Reference, compare
from annealfit.studies.report.drawing import save_layer_errors
from annealfit.samplers import SimulatedAnnealer
from benchmarks.quantized_networks import Trained, conv_net, perceptron
from benchmarks.quantized_wheels import WHEELS

GRIDS: dict[str, dict[str, Any]] = {
    "1 bit": {"bits": 1},
    "ternary": {"bits": 2, "levels": "ternary"},
    "2 bits": {"bits": 2},
    "3 bits": {"bits": 3},
    "4 bits": {"bits": 4},
}
METHODS = ("nearest", "gptq", "descent", "annealed")
NEIGHBOURS_DATA = ("fashion_mnist", "emnist", "cifar10")
TITLES = ("nearest", "GPTQ", "GPTQ + descent", "annealed")


def perceptrons(folder: Path | None, *, quick: bool, plot: Path | None = None) -> None:
    """Perceptrons by scikit-learn."""
    _networks("784–128–64–10 on MNIST", lambda seed: perceptron("mnist", seed, folder), quick=quick, plot=plot)


def convolutions(folder: Path | None, *, quick: bool, plot: Path | None = None) -> None:
    """Convolution networks by Adam."""
    title = "convolutions of 8 and 16 filters on MNIST"
    _networks(title, lambda seed: conv_net(seed, folder), quick=quick, plot=plot)


def _networks(title: str, make: Callable[[int], Trained], *, quick: bool, plot: Path | None = None) -> None:
    """Errors by layer and accuracies, means over three networks; quickly: of one, at 1 and 2 bits."""
    grids = {name: GRIDS[name] for name in ("1 bit", "2 bits")} if quick else GRIDS
    trained = [make(seed) for seed in range(1 if quick else 3)]
    plain = 100 * np.mean([one.accuracy() for one in trained])
    rows, ratios, sums_by_grid = [], [], {}
    for name, grid in grids.items():
        found = [{method: _quantized(one, method, grid) for method in METHODS} for one in trained]
        layers = [layer.name for layer in found[0]["annealed"]]
        # errors (networks, layers, methods), all from the run by annealing, in which all methods are tried
        errors = np.array(
            [[[layer.errors[m] for m in METHODS] for layer in one["annealed"].layers] for one in found]
        ).mean(axis=0)
        for layer, own in zip(layers, errors, strict=True):
            rows.append([name, layer, *(f"{e:.4f}" for e in own), f"{own[3] / own[1]:.2f}", ""])
        sums = errors.sum(axis=0)
        sums_by_grid[name] = dict(zip(METHODS, errors.mean(axis=0), strict=True))
        accuracies = [
            100 * np.mean([one.accuracy(own[m].model) for one, own in zip(trained, found, strict=True)])
            for m in METHODS
        ]
        rows.append([name, "accuracy, %", *(f"{a:.2f}" for a in accuracies), "", f"{plain:.2f}"])
        print("#", *rows[-len(layers) - 1 :], sep="\n#   ", flush=True)
        ratios.append([name, f"{sums[3] / sums[1]:.3f}", f"{1 - sums[3] / sums[2]:.1%}"])
    if plot is not None:
        draw(sums_by_grid, plot, f"{title}: mean over layers")
    headings = ["levels", "layer", *TITLES, "annealed / GPTQ", "32 bits"]
    print_table(f"{title}, mean of {len(trained)} networks", headings, rows)
    print_table(
        f"{title}: errors summed over layers",
        ["levels", "annealed / GPTQ", "annealed below GPTQ + descent by"],
        ratios,
    )


def draw(errors: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """The errors of all methods, by the levels that weights have."""
    save_layer_errors(list(errors), list(errors.values()), path, title)


def unseen(folder: Path | None, *, quick: bool) -> None:
    """Errors of the first layer on images that were not used for calibration, by their number and the damping."""
    rows, trained = [], perceptron("mnist", 0, folder)
    for name in ("1 bit", "2 bits"):
        for count in (2000,) if quick else (500, 2000):
            for damping in (0.0, 0.01) if quick else (0.0, 0.01, 0.05):
                cells = _seen_and_unseen(trained, name, count, damping)
                rows.append([name, str(count), f"{damping:g}", *(f"{seen:.4f} / {other:.4f}" for seen, other in cells)])
                print("#", *rows[-1], flush=True)
    headings = ["levels", "images", "damping", "GPTQ", "GPTQ + descent", "annealed"]
    print_table("First layer on MNIST: error on the calibration images / on the test images", headings, rows)


def _seen_and_unseen(trained: Trained, name: str, count: int, damping: float) -> list[tuple[float, float]]:
    weights, bias, *_ = _constants(trained.model)
    seen, test = trained.calibration[:count].astype(float), trained.X_test.astype(float)
    wanted, found = test @ weights + bias, []
    for method in METHODS[1:]:
        settings = GRIDS[name] | {"method": method, "damping": 0.0 if method == "gptq" else damping}
        result = quantize_layer(weights, seen, bias=bias, **settings)
        left = test @ result.weights + result.bias - wanted
        found.append((result.error, float((left**2).mean(axis=0).sum() / wanted.var(axis=0).sum())))
    return found


OWN_ERRORS: dict[str, Any] = {
    "damping": 0.0,
    "along_loss": False,
    "refit": False,
}  # every layer along its own error, as in 0.2.0


def _quantized(trained: Trained, method: str, grid: dict[str, Any]) -> Any:
    settings = {"validation": trained.X_test[:100], **OWN_ERRORS, **grid}  # nothing is held out, nothing chosen
    return quantize_network(trained.model, trained.calibration, method=method, **settings)


def loss(folder: Path | None, *, quick: bool) -> None:
    """Divergence and accuracy on the test images; quickly: of MNIST."""
    methods = {"nearest": "nearest", "GPTQ": "gptq", "descent, own errors": "descent"}
    rows, methods = [], methods | {"annealed, own errors": "annealed"}
    networks = {name: partial(perceptron, name, epochs=5) for name in ("mnist", "fashion_mnist", "kmnist")}
    networks["mnist, convolutions"] = conv_net
    for dataset in ("mnist",) if quick else networks:
        trained = networks[dataset](seed=0, folder=folder)
        before = _outputs(trained.model, trained.X_test)
        print("#", dataset, f"float {100 * trained.accuracy():.2f}", flush=True)
        for bits in (1, 2):
            cells = [dataset, str(bits)]
            for title, method in [*methods.items(), ("annealed, chosen", None)]:
                began = time.process_time()
                if method is None:
                    found = quantize_network(trained.model, trained.calibration, bits)
                else:
                    found = _quantized(trained, method, {"bits": bits})
                seconds = time.process_time() - began
                pair = [before], [_outputs(found.model, trained.X_test)]
                cells.append(
                    f"{compare([pair]).divergence:.4f}, {100 * trained.accuracy(found.model):.2f}, {seconds:.0f}"
                )
                print("#", dataset, bits, title, cells[-1], flush=True)
            rows.append(cells)
    headings = ["network", "bits", *methods, "annealed, chosen on held-out rows"]
    print_table("divergence, test accuracy in %, processor seconds", headings, rows)


def _outputs(model: Any, rows: np.ndarray) -> np.ndarray:
    return OnnxGraph(model).runner([model.graph.output[0].name])({"x": rows})[0]


WHEEL_BITS: dict[str, tuple[dict[str, Any], ...]] = {  # bits of a network, and those in the mean
    "magika": ({"bits": 2}, {"mean_bits": 2.1}, {"mean_bits": 2.4}),
    **dict.fromkeys(set(WHEELS) - {"magika"}, ({"bits": 2}, {"bits": 4})),
}


def wheels(folder: Path | None, *, quick: bool, networks: Sequence[str] | None = None, part: str = "report") -> None:
    """Networks from wheels, on rows of the report; quickly: magika."""
    if folder is None:
        raise SystemExit("name the folder of the wheels and their rows: --networks FOLDER")
    headings = ["bits", "method", "divergence", "agreement, %", "error", "bytes", "CPU seconds", "ms a row"]
    for name in networks or (["magika"] if quick else list(WHEELS)):
        model, calibration = WHEELS[name].model(folder), WHEELS[name].inputs(folder, name, "calibration")
        original = OnnxGraph(model)
        shown = Reference(original, batches_of(WHEELS[name].inputs(folder, name, part), original)[0])

        def judge(other: Any, shown: Reference = shown) -> Fidelity:
            return shown.compare(OnnxGraph(other))

        rows = [["32", *_cells(Compared("float", judge(model), original.n_bytes, 0.0)), _latency(model, shown)]]
        for settings in WHEEL_BITS[name]:
            opponents = OPPONENTS if "bits" in settings else {}
            for title, method in {**opponents, "default": None}.items():
                own = {} if method is None else {**OWN_ERRORS, "method": method}
                found = quantize_network(model, calibration, **settings, **own)
                one = Compared(title, judge(found.packed), found.bytes_after, found.seconds)
                rows.append([f"{found.mean_bits:.2f}", *_cells(one), _latency(found.packed, shown)])
                print("#", name, *rows[-1], flush=True)
        rows.append(["8", *_cells(by_onnxruntime(model, replace(found, judge=judge))), ""])
        print_table(f"{name}, {sum(shown.rows):,} rows", headings, rows)


def _cells(one: Compared) -> list[str]:
    if one.fidelity is None:
        return [one.method, one.failure, "", "", "", ""]
    agreement = "" if one.fidelity.agreement is None else f"{100 * one.fidelity.agreement:.1f}"
    numbers = [f"{one.fidelity.divergence:.4f}", agreement, f"{one.fidelity.error:.4f}", f"{one.n_bytes:,}"]
    return [one.method, *numbers, f"{one.seconds:.0f}"]


def _latency(model: Any, shown: Reference) -> str:
    """Milliseconds of a row in onnxruntime, the least of three runs of a batch."""
    run = OnnxGraph(model).runner(shown.names)
    _, (seconds, _) = _least_times(partial(run, shown.feeds[0]), quick=False)
    return f"{1000 * seconds / shown.rows[0]:.2f}"


class UpOrDown:
    """Every weight to the level below or above it: the neighbour's formulation, by simulated annealing."""

    name = "up or down"
    starts_from_nothing = True

    def __init__(self, sweeps: int = 300, reads: int = 1) -> None:
        self.sampler = SimulatedAnnealer(num_sweeps=sweeps, num_reads=reads)

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        grid, scales = problem.grid, problem.first_scales
        spacings = grid.step * problem.spread(scales)
        below = np.clip(
            np.floor((problem.weights / problem.spread(scales) - grid.lowest) / grid.step), 0, grid.count - 2
        )
        middles = problem.spread(scales) * (grid.lowest + grid.step * (below + 0.5))
        problems = Problems(
            (problem.metric,), middles @ problem.metric.matrix - problem.correlations, spacings[:, 0] / 2, 1
        )
        answers = self.sampler.solve(problems, list(range(seed % 1000, seed % 1000 + len(problems))))
        chosen = np.stack([answer.best_bits[:, 0] for answer in answers])
        return Rounding((below + chosen).astype(np.int64), scales)


def neighbour(folder: Path | None, *, quick: bool) -> None:
    """The neighbour's data sets: ours beside its formulation."""
    rows = []
    for dataset in NEIGHBOURS_DATA:
        trained = perceptron(dataset, 0, folder)
        plain = 100 * trained.accuracy()
        for bits in (2,) if quick else (1, 2, 4):
            for title, method in (
                ("nearest", "nearest"),
                ("up or down, annealed", UpOrDown()),
                ("up or down, 3,000 sweeps", UpOrDown(sweeps=3000)),
                ("GPTQ", "gptq"),
                ("GPTQ + descent", "descent"),
                ("annealed levels", "annealed"),
            ):
                began = time.process_time()
                found = quantize_network(trained.model, trained.calibration, bits, method=method)
                seconds = time.process_time() - began
                first, *_, last = (layer.error for layer in found)
                rows.append(
                    [
                        dataset,
                        str(bits),
                        title,
                        f"{first:.4f}",
                        f"{last:.4f}",
                        f"{100 * trained.accuracy(found.model):.2f}",
                        f"{seconds:.1f}",
                    ]
                )
                print("#", *rows[-1], flush=True)
        rows.append([dataset, "32", "as trained", "", "", f"{plain:.2f}", ""])
    headings = ["data set", "bits", "method", "error, first layer", "last layer", "accuracy, %", "CPU seconds"]
    print_table("The neighbour's data sets, pixels–128–64–classes", headings, rows)


def timing(folder: Path | None, *, quick: bool) -> None:
    """Seconds of a 784×128 layer at 2 bits; dwave-samplers on the same problems."""
    trained = perceptron("mnist", 0, folder)
    weights, moments = next(_constants(trained.model)), InputMoments.of(trained.calibration)
    quantize_layer(weights[:20, :2], trained.calibration[:, :20], method="annealed")  # compiles
    rows, threads = [], joblib.cpu_count()
    for title, method in (
        ("GPTQ", "gptq"),
        ("GPTQ + descent", "descent"),
        ("all of it, one thread", Annealed(num_threads=1)),
        (f"all of it, {threads} threads", Annealed(num_threads=threads)),
    ):
        result, clocks = _least_times(partial(quantize_layer, weights, moments, bits=2, method=method), quick=quick)
        rows.append([title, *(f"{seconds:.2f}" for seconds in clocks), f"{result.error:.4f}"])
    print_table("A layer of 784×128 at 2 bits", ["method", "seconds", "CPU seconds", "error"], rows)
    _beside_dwave(weights[:, : 2 if quick else 4], moments, quick=quick)


def _beside_dwave(weights: np.ndarray, moments: InputMoments, *, quick: bool) -> None:
    """A few outputs at the scales that descent found, one thread: single flips of bits beside moves of levels."""
    from dwave.samplers import SimulatedAnnealingSampler

    sweeps, count = 100, weights.shape[1]
    problem = Layer.of(weights, moments, None, Grid.of(2)).problem
    start = Descent().improve(problem, GPTQ(search=True).improve(problem, None, 0), 0)
    problems, _ = to_problems(problem, start.scales)
    models = [(one.to_bqm(), _betas(one)) for one in problems]

    def levels() -> np.ndarray:
        return problem.errors(Annealed(sweeps, 1, num_threads=1).improve(problem, start, 0))

    def bits() -> np.ndarray:
        answers = SimulatedAnnealer(num_sweeps=sweeps, num_threads=1).solve(problems, range(count))
        return np.array([answer.best_energy for answer in answers]) + problem.powers

    def dwave() -> np.ndarray:
        sampler = SimulatedAnnealingSampler()
        found = [sampler.sample(model, betas, num_reads=1, num_sweeps=sweeps, seed=1) for model, betas in models]
        return np.array([one.first.energy for one in found]) + problem.powers

    rows, seconds = [], []
    walks = {"annealed levels": levels, "SimulatedAnnealer (bits)": bits, "dwave-samplers (bits)": dwave}
    for title, walk in walks.items():
        errors, (_, own) = _least_times(walk, quick=quick)
        seconds.append(own)
        rows.append([title, f"{own / count:.3f}", f"{errors.sum() / problem.powers.sum():.4f}"])
    print_table(f"{count} outputs, {sweeps} sweeps, one thread", ["sampler", "CPU seconds per output", "error"], rows)
    print(f"dwave-samplers takes {seconds[2] / seconds[0]:.1f} times as long as annealed levels")


def _least_times(function: Callable[[], Any], *, quick: bool) -> tuple[Any, tuple[float, float]]:
    """What a function gives, and the least seconds and processor seconds of its calls."""
    times = []
    for _ in range(1 if quick else 3):
        before = time.perf_counter(), time.process_time()
        result = function()
        times.append((time.perf_counter() - before[0], time.process_time() - before[1]))
    seconds, processor_seconds = (min(clock) for clock in zip(*times, strict=True))
    return result, (seconds, processor_seconds)


def _betas(problem: QuadraticProblem) -> tuple[float, float]:
    """From flips of the largest bit being free to those of the smallest one being frozen."""
    diagonal = Curvature(problem.curvature).diagonal
    spacing = 2 * problem.encoding.range / (2**problem.encoding.bits - 1)
    return 0.1 / float(diagonal.max() * spacing**2), 50.0 / float(np.median(diagonal[diagonal > 0]) * spacing**2)


def _constants(model: Any) -> Any:
    from onnx import numpy_helper

    return (numpy_helper.to_array(tensor).astype(float) for tensor in model.graph.initializer)


PARTS = {
    "perceptron": perceptrons,
    "convolutions": convolutions,
    "unseen": unseen,
    "neighbour": neighbour,
    "loss": loss,
    "wheels": wheels,
    "time": timing,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantization", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parts = [part for part in PARTS if part != "wheels"]
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=parts)
    parser.add_argument("--quick", action="store_true", help="one network, fewer levels")
    parser.add_argument("--networks", type=Path, help="a folder of trained networks, which are kept, or of wheels")
    parser.add_argument("--network", choices=list(WHEELS), action="append", help="of wheels: one of them")
    parser.add_argument("--rows", choices=("trials", "report"), default="report", help="of wheels")
    parser.add_argument("--plot", type=Path, help="a figure of the errors of perceptron, or of convolutions")
    given = parser.parse_args()
    drawn = [part for part in given.parts if part in ("perceptron", "convolutions")]
    if given.plot is not None and len(drawn) != 1:
        raise SystemExit("--plot is for one part alone: perceptron, or convolutions")
    own = {part: {"plot": given.plot} for part in drawn}
    own["wheels"] = {"networks": given.network, "part": given.rows}
    for part in given.parts:
        PARTS[part](given.networks, quick=given.quick, **own.get(part, {}))
