"""The commands that train a model and use it: `train` and `predict`."""

from __future__ import annotations

import math
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from typer import Argument, Option

import annealfit
from annealfit._support.description import describe
from annealfit._support.errors import FileFormatError, InvalidInputError, MissingDependencyError, choose, require
from annealfit._support.files import read_json
from annealfit._support.threads import free_memory
from annealfit.cli import options
from annealfit.cli.output import Column, print_json, print_table, progress_bar, say, warn, warnings_as_notes
from annealfit.data.datasets import DATASETS, RESIZE_METHODS, Dataset, is_feature_table, load_dataset, load_table
from annealfit.data.datasets.images import readable_images
from annealfit.data.datasets.own_data import image_files, read_rows
from annealfit.samplers.protocol import Preflight
from annealfit.studies import records

if TYPE_CHECKING:
    from annealfit.studies import Prepared, TrainingRun
    from annealfit.training import Iteration

OWN_IMAGES_SECONDS = 60.0
_SIZES_READ = 10  # images, to find their usual size
_SHARE_OF_MEMORY = 0.25  # images or features beyond this share of the free memory are kept on disk
_CHUNKS_PER_WORKER = 8  # more than one, so that faster workers of a cluster get more chunks

SkipUnreadable = Annotated[
    bool, Option("--skip-unreadable", help="Leave out files that are no readable images, and name them.")
]


def train(
    dataset: options.Dataset,
    preset: options.PresetOption = options.Preset.annealfit,
    bits: options.Bits = None,
    max_iter: Annotated[int | None, Option(help="Iterations at most.")] = None,
    filters: Annotated[
        str | None, Option(help="Convolution filters; 16,32 are those of two layers.", show_default="2")
    ] = None,
    kernel: Annotated[
        str | None, Option(help="Kernel size of the filters, or one per layer.", show_default="3")
    ] = None,
    pool: Annotated[str | None, Option(help="Max-pooling size, or one per layer.", show_default="2")] = None,
    train_filters: Annotated[
        bool | None,
        Option(
            "--train-filters/--frozen-filters",
            help="Train the filters too, by QUBOs; beside it, frozen filters and Adam.",
            show_default="frozen",
        ),
    ] = None,
    regularization: Annotated[float | None, Option(help="λ of the weights' penalty. Default: 0.001.")] = None,
    tol: Annotated[
        float | None, Option(help="Stop when the loss is certified to be so close to its minimum, relatively.")
    ] = None,
    time_limit: Annotated[float | None, Option(help="Stop after so many seconds of training.")] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="NAME=VALUE", help="A parameter of AnnealedClassifier, as curvature=bound; repeatable."
        ),
    ] = None,
    standardize: options.Standardize = "none",
    sampler: options.SamplerOption = None,
    blocks: options.Blocks = None,
    labels: Annotated[
        str | None,
        Option(metavar="COLUMN|FILE", help="Labels of a table: its column, or a .npy file with one per row."),
    ] = None,
    size: Annotated[int | None, Option(help="Side of the images after resizing.", show_default="8")] = None,
    color: Annotated[
        bool | None, Option("--color/--grey", help="Keep colours, or make images grey.", show_default="grey")
    ] = None,
    resize: Annotated[str, Option(help=f"How images are resized: {', '.join(RESIZE_METHODS)}.")] = "area",
    images: Annotated[
        str | None,
        Option(metavar="N|all", help="Images to train on; all takes all of both parts.", show_default="the paper's"),
    ] = None,
    n_train: Annotated[
        str | None, Option(metavar="N|all", help="Images or rows to train on. Default: the paper's or all.")
    ] = None,
    n_test: Annotated[
        str | None, Option(metavar="N|all", help="Images or rows to test on. Default: the paper's, or a quarter.")
    ] = None,
    on_disk: Annotated[
        bool, Option("--on-disk", help="Keep features in a temporary file; automatic if they are large.")
    ] = False,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Train on a Dask cluster, as tcp://10.0.0.1:8786.")
    ] = None,
    baselines: Annotated[
        bool | None, Option(help="SGD and logistic regression beside it. Default: if they fit in memory.")
    ] = None,
    download: options.Download = False,
    seed: options.Seed = 42,
    skip_unreadable: SkipUnreadable = False,
    out: Annotated[Path | None, Option(help="Run folder. Default: a new one below runs/.")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    history: Annotated[str, Option(metavar="csv|parquet", help="File format of the history.")] = "csv",
    plots: Annotated[bool, Option(help="Draw the figures of the run.")] = True,
    as_json: options.Json = False,
) -> None:
    """Train by annealing, with classical training beside it.

    Draws random convolution features, or takes the rows of a table as they are, trains the classifier head
    by QUBO solves, prints one table, and leaves a run folder: model, configuration, history, metrics, plots.
    Ctrl-C ends the training early and keeps what was learnt; --resume goes on from there. With
    --train-filters the filters are trained by QUBO solves too, and the folder has pictures of them.

    Your own images (a folder, or an npz file) are resized to at most 32 pixels, some are held out, and colour and a
    network with trained filters are chosen by them, all within --time-limit, 60 seconds if you give none. --size and
    --color decide for themselves; with a preset, --filters, --kernel, --pool, --frozen-filters, --standardize, --tol,
    --sampler, --blocks, --set, --on-disk or --scheduler nothing is chosen.

    Examples of use:

    \b
      annealfit train digits
      annealfit train digits --preset matched --bits 10 --out runs/matched
      annealfit train digits --train-filters --filters 4
      annealfit train ./photos --time-limit 60
      annealfit train mnist --download --filters 8 --n-train all --n-test all
      annealfit train embeddings.npy --labels labels.npy --standardize features
      annealfit train rows.parquet --labels kind --scheduler tcp://10.0.0.1:8786
      annealfit train digits --bits 2 --sampler mock-qpu:topology=Z12,faults=0.1
    """
    from annealfit.data.rows import is_out_of_core
    from annealfit.studies import Prepared, run_training

    folder = out or Path("runs") / f"{Path(dataset).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    is_table, elsewhere = is_feature_table(Path(dataset)), on_disk or scheduler is not None
    if resume and out is None:
        raise InvalidInputError("--resume needs --out, the folder of the run to continue")
    if resume and not (folder / records.CHECKPOINT_FILE).exists():
        raise InvalidInputError(
            f"--resume: there is no run to continue in {out}; check the name, or leave --resume out to start one"
        )
    if train_filters and is_table:
        raise InvalidInputError("--train-filters needs images, not a table of features; leave it out")
    if train_filters and elsewhere:
        raise InvalidInputError("--train-filters needs images in memory: leave out --on-disk and --scheduler")
    if labels is not None and not is_table:
        raise InvalidInputError("--labels are for tables of features; images are labelled by their folders or files")
    choose("--history", history, records.HISTORY_FORMATS)
    subset = options.parse_subset(images, n_train, n_test)
    load: Any = partial(load_dataset, dataset, seed=seed, resize=resize, download=download, **subset)
    load = partial(load, skip_unreadable=skip_unreadable)
    given = (filters, kernel, pool, tol, sampler, blocks, settings)
    is_open = given == (None,) * len(given) and standardize == "none" and preset == options.Preset.annealfit
    choice: dict[str, Any] = {}
    if is_open and train_filters is not False and not (is_table or elsewhere or dataset in DATASETS):
        size, choice = _choose_network(load, size, color, seed, time_limit or OWN_IMAGES_SECONDS, folder, resume)
        baselines, train_filters = bool(baselines or train_filters), True
        color, max_iter = choice["color"], max_iter or choice["max_iter"]
        time_limit = max(1.0, (time_limit or OWN_IMAGES_SECONDS) - choice["seconds"])
    size, color, train_filters = 8 if size is None else size, bool(color), bool(train_filters)
    features: dict[str, Any] = {
        "n_filters": options.parse_layers(filters or "2", "--filters"),
        "kernel_size": options.parse_layers(kernel or "3", "--kernel"),
        "pool_size": options.parse_layers(pool or "2", "--pool"),
        "standardize": standardize,
        **choice.get("layers", {}),
    }
    estimator = options.make_estimator(
        preset,
        train_filters,
        settings or (),
        bits=bits,
        max_iter=max_iter,
        regularization=regularization,
        tol=tol,
        time_limit=time_limit,
        random_state=seed,
    )
    chosen = options.make_sampler(sampler, blocks, estimator.sampler, seed)
    estimator.set_params(sampler=chosen, **({"shifts": choice["shifts"]} if choice else {}))
    load = warnings_as_notes()(partial(load, size=size, color=color))
    config: dict[str, Any] = {"dataset": dataset, "labels": labels, "color": color, "resize": resize, "seed": seed}
    config |= {"image_size": size, **subset, "preset": str(preset), "annealfit": annealfit.__version__}
    config |= {"choice": choice} if choice else {}
    again = shlex.join([*sys.argv[1:], *([] if out else ["--out", str(folder)]), *([] if resume else ["--resume"])])
    with chosen, tempfile.TemporaryDirectory(prefix="annealfit-") as scratch:  # connections close in the end
        extractor = annealfit.RandomConvFeatures(**features, random_state=seed)
        if train_filters:
            data: Any = load()
            extractor.fit(data.X_train[:2])  # layers that do not fit the images fail here
            estimator.set_params(**features)
        elif is_table:
            choose("--standardize (of a table)", standardize, ("none", "features"))
            sizes = {"n_train": None, "n_test": None, **subset}
            table = load_table(Path(dataset), labels, Path(scratch), seed=seed, **sizes)
            data = Prepared.of(table, annealfit.data.features.RowScaler() if standardize == "features" else None)
        else:
            data = _prepare_images(load, extractor, on_disk, Path(scratch))
        made = {**features, "random_state": seed} if train_filters else data.features and data.features.get_params()
        config |= {"features": describe(made), "classifier": describe(estimator.get_params(deep=False))}
        beside = not is_out_of_core(data.X_train) if baselines is None else baselines
        with (
            _on_cluster(scheduler, data) as rows,
            _in_run_folder(folder, estimator, rows, config, again, resume=resume) as on_iteration,
        ):
            run = run_training(data, estimator, [on_iteration], baselines=beside, rows=rows)
            records.save_run(run, folder, config, history_format=history)
    _print_run(run, folder, again, plots=plots, as_json=as_json)


@contextmanager
def _in_run_folder(
    folder: Path, estimator: Any, rows: tuple[Any, Any], config: dict[str, Any], again: str, *, resume: bool
) -> Iterator[Callable[[Iteration], None]]:
    """Open the folder of a training and show its progress; after Ctrl-C say how to go on with `again`."""
    # Bad settings, or a problem that does not fit the device, fail before a file is written or a call paid for.
    plan = estimator.preflight(*rows)
    if plan is not None:
        warn(_describe_plan(plan, estimator.max_iter, of_layers=isinstance(estimator, annealfit.AnnealedConvNet)))
    with records.opened_run_folder(folder, config, resume=resume):
        checkpoint = folder / records.CHECKPOINT_FILE
        estimator.set_params(checkpoint=annealfit.Checkpoint(checkpoint, resume=resume))
        try:
            with training_progress(estimator.max_iter, estimator.time_limit) as on_iteration:
                yield on_iteration
        except KeyboardInterrupt:
            if checkpoint.exists():
                warn(f"Interrupted. What was learnt is in {folder}. Go on with:\nannealfit {again}")
            else:
                warn("Interrupted before the first iteration: there is nothing to resume; start it again.")
            raise typer.Exit(130) from None


def _choose_network(
    load: Callable[..., Dataset],
    size: int | None,
    color: bool | None,
    seed: int,
    seconds: float,
    folder: Path,
    resume: bool,
) -> tuple[int, dict[str, Any]]:
    """The size of a user's own images, and the choice of a network for them, told; of a resumed run its own."""
    from annealfit.studies.image_choice import MAX_ITER, SIZE, choose_network

    if resume:
        config = read_json(folder / records.CONFIG_FILE, "the configuration of a run")
        if config.get("choice") is None:
            raise InvalidInputError(
                f"{folder} holds a run whose network was given by options; give them again (or --frozen-filters)"
            )
        chosen, layers = config["choice"], {}
        chosen["color"].flag()
        chosen["seconds"].number(minimum=0)
        for name in ("n_filters", "kernel_size", "pool_size"):
            field = chosen["layers"][name]
            for size_of_one in field.items() if isinstance(field.value, list) else [field]:
                size_of_one.whole(minimum=1)
            layers[name] = field.value
        for name in ("shifts", "max_iter"):
            chosen[name].whole(minimum=0)
        return config["image_size"].whole(minimum=1), {**chosen.value, "layers": layers}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told when the images are loaded for the training
        if size is None:  # the median of the shorter sides of some images, if it is no larger
            native = load(color=True, size=None, lazy=True).X_train
            places = range(0, len(native), max(1, len(native) // _SIZES_READ))
            size = min(SIZE, int(np.median([min(native[place : place + 1].shape[1:3]) for place in places])))
        own = load(size=size, color=True)
    warn(f"{len(own.y_train)} training images of {size}×{size} pixels (--size). Comparing networks:")
    choice = choose_network(own.X_train, own.y_train, color=color, seed=seed, time_limit=seconds, tell=warn)
    warn(choice.describe())
    return size, {**asdict(choice), "max_iter": MAX_ITER}


@contextmanager
def _on_cluster(address: str | None, data: Any) -> Iterator[tuple[Any, Any]]:
    """The training rows and labels, on the workers of a cluster if there is an address."""
    if address is None:
        yield data.X_train, data.y_train
        return
    distributed = require("distributed", extra="dask", purpose="working on a Dask cluster")
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"--scheduler {address}: no Dask scheduler answers there ({error})") from error
    with client:
        workers = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        chunks = math.ceil(len(data.y_train) / (workers * _CHUNKS_PER_WORKER)), data.X_train.shape[1]
        from_array = require("dask.array", extra="dask", purpose="working on a Dask cluster").from_array
        # Arrays in memory are sent once; files are read by the workers.
        features = from_array(data.X_train, chunks=chunks, getitem=_read_rows)
        yield annealfit.data.rows.DaskRows(features, data.y_train), None


def _read_rows(table: Any, index: tuple[slice, slice], **_: Any) -> Any:
    return np.asarray(table[index[0]])


def _prepare_images(
    load: Callable[..., Dataset], extractor: annealfit.RandomConvFeatures, on_disk: bool, folder: Path
) -> Prepared:
    images = load(lazy=True)
    values = max(extractor.fit(images.X_train[:2]).n_features_out_, math.prod(images.X_train.shape[1:]))
    count = values * (len(images.y_train) + len(images.y_test))  # of features, or of pixels if there are more
    if on_disk or 8 * count > _SHARE_OF_MEMORY * (free_memory() or math.inf):
        warn(f"Features are kept in a temporary file ({4 * count / 2**30:.2f} GiB), and read from there.")
        return annealfit.studies.Prepared.on_disk(images, extractor, folder)
    in_memory = replace(images, X_train=images.X_train[:], X_test=images.X_test[:])
    return annealfit.studies.Prepared.of(in_memory, extractor)


@contextmanager
def training_progress(max_iter: int, time_limit: float | None = None) -> Iterator[Callable[[Iteration], None]]:
    """A live bar with loss, accuracy and time left; warnings follow it.

    Its end is the number of iterations that the time limit leaves, where it is the smaller one.
    """
    bar = progress_bar("Training", total=max_iter, description="first iteration")
    with warnings_as_notes(), bar as update:

        def on_iteration(iteration: Iteration) -> None:
            row = iteration.row
            reached = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.1%}"
            count, seconds = row["iteration"], row["seconds"]
            most = max_iter if not time_limit or not seconds else min(max_iter, math.ceil(count * time_limit / seconds))
            update(completed=count, total=most, description=reached)

        yield on_iteration


def _describe_plan(plan: Preflight, max_iter: int, *, of_layers: bool) -> str:
    """One line of what the device will cost; of a network, what a step of each layer costs."""
    from annealfit.samplers.dwave.qpu import UNRESOLVED_SHARE

    advice = ": use fewer bits, or --standardize features" if plan.unresolved_share > UNRESOLVED_SHARE else ""
    what, most = ("A step of every layer", "at most ") if of_layers else ("An iteration", "")
    return (
        f"{what}: {plan.calls} {'call' if plan.calls == 1 else 'calls'}, {plan.qubits:,} qubits, chains of at "
        f"most {plan.longest_chain}, {plan.access_seconds:.3f} s of QPU access; {max_iter} iterations: "
        f"{most}{max_iter * plan.access_seconds:.1f} s. {plan.unresolved_share:.0%} of the couplings are below the "
        f"device's analog error{advice}."
    )


def _percent(part: str, metric: str) -> Callable[[Any], str]:
    return lambda record: f"{100 * getattr(record, part)[metric]:.1f}"


_METRICS = (
    Column("method", "{0.method}", "left"),
    Column("train\n%", _percent("train", "accuracy")),
    Column("test\n%", _percent("test", "accuracy")),
    Column("prec.\n%", _percent("test", "precision")),
    Column("recall\n%", _percent("test", "recall")),
    Column("F1\n%", _percent("test", "f1")),
    Column("κ", "{0.test[kappa]:.3f}"),
    Column("MCC", "{0.test[mcc]:.3f}"),
    Column("loss", "{0.loss:.4f}"),
    Column("sec.", "{0.seconds:.2f}"),
)


def _print_run(run: TrainingRun, folder: Path, again: str, *, plots: bool, as_json: bool) -> None:
    """Print the table or its JSON, and draw; notes beside a JSON document go to standard error."""
    from annealfit.studies.report import drawing

    classifier, dataset, tell = run.classifier, run.dataset, warn if as_json else say
    if as_json:
        typer.echo((folder / "metrics.json").read_text(encoding="utf-8").rstrip())
    else:
        kind = "images" if len(dataset.X_test.shape) > 2 else "rows"
        title = f"{dataset.name}: {len(dataset.y_train)} training, {len(dataset.y_test)} test {kind}"
        print_table(run.records, _METRICS, title=title)
    try:
        if plots:
            drawing.save_run_figures(run, folder)
    except MissingDependencyError as error:
        tell(f"No plots: {error}")
    history = classifier.history_
    if history and "access_seconds" in history[0]:
        calls, seconds, faults = (sum(row[n] for row in history) for n in ("calls", "access_seconds", "fault_count"))
        answered = [row["chain_breaks"] for row in history if row["solved"]]
        broken = sum(answered) / max(len(answered), 1)
        faulty = f"{faults} faults (history, column faults)"
        tell(f"{calls} calls, {seconds:.3f} s of QPU access, {broken:.1%} of chains broken, {faulty}.")
    if classifier.stop_reason_ in ("budget", "sampler"):
        tell("What was learnt is saved, and --resume goes on from there.")
    interrupted = classifier.stop_reason_ == "interrupted"
    if interrupted:
        done = f"{classifier.n_iter_} of {classifier.max_iter}"
        tell(f"Interrupted after {done} iterations. Go on with:\nannealfit {again}")
    tell(f"Run folder: {folder}")
    if interrupted:
        raise typer.Exit(130)  # the exit code of a program that Ctrl-C ended


def predict(
    model: Annotated[Path, Argument(help="A run folder, or a model file.")],
    inputs: Annotated[
        list[str],
        Argument(
            metavar="FILES…",
            help="Image files, or folders of them, of any size; for a model of rows tables of features: .csv, .npy, "
            ".npz or Parquet. - reads an image, or lines of CSV, from a pipe.",
        ),
    ],
    top: Annotated[int, Option(min=1, help="How many classes to show for each image.")] = 3,
    invert: Annotated[bool, Option("--invert", help="Swap dark and bright: data sets are bright on black.")] = False,
    skip_unreadable: SkipUnreadable = False,
    as_json: options.Json = False,
) -> None:
    """Classify images or rows of a table with a trained model.

    For images a table is printed; for rows a line of CSV each, with the class and its probability.

    Examples of use:

    \b
      annealfit predict runs/demo runs/demo/samples/class-8.png
      annealfit predict runs/demo runs/demo/samples
      annealfit predict runs/table new.csv > answers.csv
      cat new.csv | annealfit predict runs/table - | cut -d, -f1
    """
    from annealfit.models.image_classifier import ImageClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sampler that was not stored does not matter here
        loaded = annealfit.load_model(model / records.MODEL_FILE if model.is_dir() else model)
    takes_images = isinstance(loaded, ImageClassifier)
    if invert and not takes_images:
        raise InvalidInputError("--invert is for images; the model takes rows of features")
    with tempfile.TemporaryDirectory(prefix="annealfit-") as folder:
        piped = Path(folder) / "-"
        if "-" in inputs:
            piped.write_bytes(sys.stdin.buffer.read())
        files = [piped if name == "-" else Path(name) for name in inputs]
        if takes_images:
            files, pixels = _read_images(loaded, files, skip=skip_unreadable)
            names, probabilities = loaded.class_names, loaded.predict_proba(1 - pixels if invert else pixels)
            places: list[dict[str, Any]] = [{"image": _shown(file)} for file in files]
        else:
            rows = [(_shown(file), read_rows(file, [*getattr(loaded, "feature_names_in_", ())])) for file in files]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "X does not have valid feature names")  # columns were chosen by name
                tables = [(file, loaded.predict_proba(table)) for file, table in rows]
            names = [*map(str, loaded.classes_)]
            probabilities = np.concatenate([own for _, own in tables])
            places = [{"file": file, "row": row} for file, own in tables for row in range(len(own))]
    answers = []
    for place, row in zip(places, probabilities, strict=True):
        best = np.argsort(-row, kind="stable")[:top].tolist()
        answers.append({**place, "classes": {names[label]: float(row[label]) for label in best}})
    if as_json:
        print_json(answers)
    elif takes_images:
        print_table(answers, _ANSWER)
    else:
        firsts = [next(iter(answer["classes"].items())) for answer in answers]
        typer.echo(records.csv_text([{"class": name, "probability": share} for name, share in firsts]), nl=False)


_ANSWER = (
    Column("image", "{0[image]}", "fold"),
    Column("class", lambda answer: next(iter(answer["classes"])), "fold"),
    Column("probability", lambda answer: f"{next(iter(answer['classes'].values())):.1%}"),
    Column("then", lambda answer: ", ".join(f"{n} {p:.1%}" for n, p in [*answer["classes"].items()][1:]), "fold"),
)


def _read_images(model: Any, inputs: Sequence[Path], *, skip: bool) -> tuple[list[Path], Any]:
    """The image files among the inputs, and their pixels; those that cannot be read are named together."""
    files = [file for path in inputs for file in image_files(path)]
    try:
        return files, np.stack([model.read_image(file) for file in files])
    except (FileFormatError, OSError):
        with warnings_as_notes():
            files = readable_images(files, skip=skip)
        return files, np.stack([model.read_image(file) for file in files])


def _shown(file: Path) -> str:
    return "-" if file.name == "-" else str(file)
