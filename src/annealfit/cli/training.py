"""The commands that train a model and use it: `train` and `predict`."""

from __future__ import annotations

import json
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

    # Rows and labels, how features are made (for the configuration), and what trains on them.
    _Training = tuple[tuple[Any, Any], dict[str, Any] | None, Callable[..., TrainingRun]]

OWN_IMAGES_SECONDS = 60.0
_SIZES_READ = 10  # images, to find their usual size
_SHARE_OF_MEMORY = 0.25  # images or features beyond this share of the free memory are kept on disk
_CHUNKS_PER_WORKER = 8  # more than one, so that faster workers of a cluster get more chunks

TrainFilters = Annotated[
    bool | None,
    Option(
        "--train-filters/--frozen-filters",
        help="Train the filters too, by QUBOs; beside it, frozen filters and Adam.",
        show_default="frozen",
    ),
]
Tol = Annotated[float | None, Option(help="Stop when the loss is certified to be so close to its minimum, relatively.")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="A parameter of AnnealedClassifier, as curvature=bound; repeatable."),
]
Labels = Annotated[
    str | None, Option(metavar="COLUMN|FILE", help="Labels of a table: its column, or a .npy file with one per row.")
]
Images = Annotated[
    str | None,
    Option(metavar="N|all", help="Images to train on; all takes all of both parts.", show_default="the paper's"),
]
TrainSize = Annotated[
    str | None, Option(metavar="N|all", help="Images or rows to train on. Default: the paper's or all.")
]
TestSize = Annotated[
    str | None, Option(metavar="N|all", help="Images or rows to test on. Default: the paper's, or a quarter.")
]
SkipUnreadable = Annotated[
    bool, Option("--skip-unreadable", help="Leave out files that are no readable images, and name them.")
]
OnDisk = Annotated[bool, Option("--on-disk", help="Keep features in a temporary file; automatic if they are large.")]
Scheduler = Annotated[str | None, Option(metavar="ADDRESS", help="Train on a Dask cluster, as tcp://10.0.0.1:8786.")]
Baselines = Annotated[
    bool | None, Option(help="SGD and logistic regression beside it. Default: if they fit in memory.")
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
    train_filters: TrainFilters = None,
    regularization: Annotated[float | None, Option(help="λ of the weights' penalty. Default: 0.001.")] = None,
    tol: Tol = None,
    time_limit: Annotated[float | None, Option(help="Stop after so many seconds of training.")] = None,
    settings: Settings = None,
    standardize: options.Standardize = "none",
    sampler: options.SamplerOption = None,
    blocks: options.Blocks = None,
    labels: Labels = None,
    size: Annotated[int | None, Option(help="Side of the images after resizing.", show_default="8")] = None,
    color: Annotated[
        bool | None, Option("--color/--grey", help="Keep colours, or make images grey.", show_default="grey")
    ] = None,
    resize: Annotated[str, Option(help=f"How images are resized: {', '.join(RESIZE_METHODS)}.")] = "area",
    images: Images = None,
    n_train: TrainSize = None,
    n_test: TestSize = None,
    on_disk: OnDisk = False,
    scheduler: Scheduler = None,
    baselines: Baselines = None,
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
    folder = out or Path("runs") / f"{Path(dataset).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    is_table = is_feature_table(Path(dataset))
    _check_options(is_table, bool(train_filters), labels, out, resume)
    choose("--history", history, records.HISTORY_FORMATS)
    elsewhere = on_disk or scheduler is not None
    if train_filters and elsewhere:
        raise InvalidInputError("--train-filters needs images in memory: leave out --on-disk and --scheduler")
    subset = options.parse_subset(images, n_train, n_test)
    load: Any = partial(load_dataset, dataset, seed=seed, resize=resize, download=download, **subset)
    load = partial(load, skip_unreadable=skip_unreadable)
    given = (filters, kernel, pool, tol, sampler, blocks, settings)
    is_open = given == (None,) * len(given) and standardize == "none" and preset == options.Preset.annealfit
    choice = None
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
    } | (choice["layers"] if choice else {})
    estimator = options.make_estimator(
        preset,
        train_filters=train_filters,
        settings=settings or (),
        bits=bits,
        max_iter=max_iter,
        regularization=regularization,
        tol=tol,
        time_limit=time_limit,
        random_state=seed,
    )
    chosen = options.make_sampler(sampler, blocks, estimator.sampler, seed)
    estimator.set_params(sampler=chosen)
    if choice:
        estimator.set_params(shifts=choice["shifts"])
    load = warnings_as_notes()(partial(load, size=size, color=color))
    if train_filters:
        opened = _network_training(load, features, estimator, baselines is not False)
    elif is_table:
        prepare = partial(_prepare_table, Path(dataset), labels, standardize, seed, subset)
        opened = _head_training(estimator, prepare, scheduler, baselines)
    else:
        extractor = annealfit.RandomConvFeatures(**features, random_state=seed)
        prepare = partial(_prepare_images, load, extractor, on_disk)
        opened = _head_training(estimator, prepare, scheduler, baselines)
    config: dict[str, Any] = {"dataset": dataset, "labels": labels, "color": color, "resize": resize, "seed": seed}
    config |= {"image_size": size, **subset, "preset": str(preset), "annealfit": annealfit.__version__}
    if choice:
        config["choice"] = choice
    again = shlex.join([*sys.argv[1:], *([] if out else ["--out", str(folder)]), *([] if resume else ["--resume"])])
    with chosen, opened as training:  # in the end connections close and temporary files go
        run = _run_in_folder(folder, estimator, training, config, again, history, resume=resume)
    _print_run(run, folder, again, _notes(run, folder, plots=plots), as_json=as_json)


def _check_options(is_table: bool, train_filters: bool, labels: str | None, out: Path | None, resume: bool) -> None:
    if resume and out is None:
        raise InvalidInputError("--resume needs --out, the folder of the run to continue")
    if resume and out is not None and not (out / records.CHECKPOINT_FILE).exists():
        raise InvalidInputError(
            f"--resume: there is no run to continue in {out}; check the name, or leave --resume out to start one"
        )
    if train_filters and is_table:
        raise InvalidInputError("--train-filters needs images, not a table of features; leave it out")
    if labels is not None and not is_table:
        raise InvalidInputError("--labels are for tables of features; images are labelled by their folders or files")


def _run_in_folder(
    folder: Path, estimator: Any, training: _Training, config: dict[str, Any], again: str, history: str, *, resume: bool
) -> TrainingRun:
    """Train, and save the run; after Ctrl-C before or after the iterations say how to go on with `again`."""
    rows, described, run_training = training
    config |= {"features": described, "classifier": describe(estimator.get_params(deep=False))}
    # Bad settings, or a problem that does not fit the device, fail before a file is written or a call paid for.
    plan = estimator.preflight(*rows)
    if plan is not None:
        of_layers = isinstance(estimator, annealfit.AnnealedConvNet)
        warn(_describe_plan(plan, estimator.max_iter, of_layers=of_layers))
    with records.opened_run_folder(folder, config, resume=resume):
        checkpoint = folder / records.CHECKPOINT_FILE
        estimator.set_params(checkpoint=annealfit.Checkpoint(checkpoint, resume=resume))
        try:
            with training_progress(estimator.max_iter, estimator.time_limit) as on_iteration:
                run = run_training(callbacks=[on_iteration])
            records.save_run(run, folder, config, history_format=history)
        except KeyboardInterrupt:
            if checkpoint.exists():
                warn(f"Interrupted. What was learnt is in {folder}. Go on with:\nannealfit {again}")
            else:
                warn("Interrupted before the first iteration: there is nothing to resume; start it again.")
            raise typer.Exit(130) from None
    return run


def _native_side(load: Callable[..., Dataset]) -> int:
    """The median of the shorter sides of some images."""
    images = load(size=None, color=True, lazy=True).X_train
    places = range(0, len(images), max(1, len(images) // _SIZES_READ))
    return int(np.median([min(images[place : place + 1].shape[1:3]) for place in places]))


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
        config = json.loads((folder / records.CONFIG_FILE).read_text(encoding="utf-8"))
        if "choice" not in config:
            raise InvalidInputError(
                f"{folder} holds a run whose network was given by options; give them again (or --frozen-filters)"
            )
        return config["image_size"], config["choice"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told when the images are loaded for the training
        side = min(SIZE, _native_side(load)) if size is None else size
        own = load(size=side, color=True)
    warn(f"{len(own.y_train)} training images of {side}×{side} pixels (--size). Comparing networks:")
    choice = choose_network(own.X_train, own.y_train, color=color, seed=seed, time_limit=seconds, tell=warn)
    warn(choice.describe())
    return side, {**asdict(choice), "max_iter": MAX_ITER}


@contextmanager
def _network_training(
    load: Callable[..., Dataset], features: dict[str, Any], net: Any, baselines: bool
) -> Iterator[_Training]:
    """The training of a network with its filters."""
    from annealfit.studies import run_training

    images = load()
    net.set_params(**features)
    annealfit.RandomConvFeatures(**features).fit(images.X_train[:2])  # layers that do not fit the images fail here
    described = {**features, "random_state": net.random_state}
    yield (images.X_train, images.y_train), described, partial(run_training, images, net, baselines=baselines)


@contextmanager
def _head_training(
    classifier: Any, prepare: Callable[[Path], Prepared], scheduler: str | None, baselines: bool | None
) -> Iterator[_Training]:
    """The training of a classifier on features, in memory, in temporary files, or on a cluster."""
    from annealfit.data.rows import is_out_of_core
    from annealfit.studies import run_training

    with tempfile.TemporaryDirectory(prefix="annealfit-") as folder:
        prepared = prepare(Path(folder))
        described = None if prepared.features is None else describe(prepared.features.get_params())
        beside = not is_out_of_core(prepared.X_train) if baselines is None else baselines
        with _on_cluster(scheduler, prepared) as rows:
            yield rows, described, partial(run_training, prepared, classifier, baselines=beside, rows=rows)


@contextmanager
def _on_cluster(address: str | None, prepared: Prepared) -> Iterator[tuple[Any, Any]]:
    """The training rows and labels, on the workers of a cluster if there is an address."""
    if address is None:
        yield prepared.X_train, prepared.dataset.y_train
        return
    distributed = require("distributed", extra="dask", purpose="working on a Dask cluster")
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"--scheduler {address}: no Dask scheduler answers there ({error})") from error
    with client:
        workers = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        size = math.ceil(len(prepared.dataset.y_train) / (workers * _CHUNKS_PER_WORKER))
        # Arrays in memory are sent once; files are read by the workers.
        arrays, table = require("dask.array", extra="dask", purpose="working on a Dask cluster"), prepared.X_train
        features = arrays.from_array(table, chunks=(size, table.shape[1]), getitem=_read_rows)
        yield annealfit.data.rows.DaskRows(features, prepared.dataset.y_train), None


def _read_rows(table: Any, index: tuple[slice, slice], **_: Any) -> Any:
    return np.asarray(table[index[0]])


def _prepare_table(
    path: Path, labels: str | None, standardize: str, seed: int, subset: dict[str, Any], folder: Path
) -> Prepared:
    choose("--standardize (of a table)", standardize, ("none", "features"))
    rows = load_table(path, labels, folder, seed=seed, **{"n_train": None, "n_test": None, **subset})
    if standardize == "none":
        return annealfit.studies.Prepared(rows, None, rows.X_train, rows.X_test)
    return annealfit.studies.Prepared.of(rows, annealfit.data.features.RowScaler())


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


def _notes(run: TrainingRun, folder: Path, *, plots: bool) -> list[str]:
    """Draw the figures; return why there are none, what the device cost, and how a training cut short goes on."""
    from annealfit.studies.report import drawing

    classifier, notes = run.classifier, []
    try:
        if plots:
            drawing.save_run_figures(run, folder)
    except MissingDependencyError as error:
        notes.append(f"No plots: {error}")
    history = classifier.history_
    if history and "access_seconds" in history[0]:
        calls, seconds = (sum(row[name] for row in history) for name in ("calls", "access_seconds"))
        answered = [row["chain_breaks"] for row in history if row["solved"]]
        breaks = sum(answered) / max(len(answered), 1)
        faults = sum(row["fault_count"] for row in history)
        notes.append(
            f"{calls} calls, {seconds:.3f} s of QPU access, {breaks:.1%} of chains broken, {faults} faults "
            "(history, column faults)."
        )
    if classifier.stop_reason_ in ("budget", "sampler"):
        notes.append("What was learnt is saved, and --resume goes on from there.")
    return notes


def _percent(part: str, metric: str) -> Callable[[Any], str]:
    return lambda record: f"{100 * getattr(record, part)[metric]:.1f}"


_METRICS = (
    Column("method", lambda record: record.method, "left"),
    Column("train\n%", _percent("train", "accuracy")),
    Column("test\n%", _percent("test", "accuracy")),
    Column("prec.\n%", _percent("test", "precision")),
    Column("recall\n%", _percent("test", "recall")),
    Column("F1\n%", _percent("test", "f1")),
    Column("κ", lambda record: f"{record.test['kappa']:.3f}"),
    Column("MCC", lambda record: f"{record.test['mcc']:.3f}"),
    Column("loss", lambda record: f"{record.loss:.4f}"),
    Column("sec.", lambda record: f"{record.seconds:.2f}"),
)


def _print_run(run: TrainingRun, folder: Path, again: str, notes: Sequence[str], *, as_json: bool) -> None:
    """Print the table or its JSON, and the notes; beside a JSON document they go to standard error."""
    classifier, dataset = run.classifier, run.dataset
    if as_json:
        typer.echo((folder / "metrics.json").read_text(encoding="utf-8").rstrip())
    else:
        kind = "images" if len(dataset.X_test.shape) > 2 else "rows"
        title = f"{dataset.name}: {len(dataset.y_train)} training, {len(dataset.y_test)} test {kind}"
        print_table(run.records, _METRICS, title=title)
    tell = warn if as_json else say
    for note in notes:
        tell(note)
    interrupted = classifier.stop_reason_ == "interrupted"
    if interrupted:
        tell(
            f"Interrupted after {classifier.n_iter_} of {classifier.max_iter} iterations. Go on with:\n"
            f"annealfit {again}"
        )
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

    path = model / records.MODEL_FILE if model.is_dir() else model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sampler that was not stored does not matter here
        loaded = annealfit.load_model(path)
    with _piped(inputs) as files:
        if isinstance(loaded, ImageClassifier):
            _predict_images(loaded, files, top, invert, skip_unreadable, as_json)
        elif invert:
            raise InvalidInputError("--invert is for images; the model takes rows of features")
        else:
            _predict_rows(loaded, files, top, as_json)


@contextmanager
def _piped(inputs: Sequence[str]) -> Iterator[list[Path]]:
    """The paths of the inputs; standard input is kept in a temporary file."""
    with tempfile.TemporaryDirectory(prefix="annealfit-") as folder:
        piped = Path(folder) / "-"
        if "-" in inputs:
            piped.write_bytes(sys.stdin.buffer.read())
        yield [piped if name == "-" else Path(name) for name in inputs]


def _predict_images(model: Any, inputs: Sequence[Path], top: int, invert: bool, skip: bool, as_json: bool) -> None:
    files = [file for image in inputs for file in image_files(image)]
    try:
        pixels = np.stack([model.read_image(file) for file in files])
    except (FileFormatError, OSError):
        with warnings_as_notes():
            files = readable_images(files, skip=skip)
        pixels = np.stack([model.read_image(file) for file in files])
    probabilities = model.predict_proba(1 - pixels if invert else pixels)
    answers = []
    for file, row in zip(files, probabilities, strict=True):
        image = "-" if file.name == "-" else str(file)
        answers.append({"image": image, "classes": _best(model.class_names, row, top)})
    if as_json:
        print_json(answers)
        return
    columns = [
        Column("image", lambda answer: answer["image"], "fold"),
        Column("class", lambda answer: next(iter(answer["classes"])), "fold", style="bold"),
        Column("probability", lambda answer: f"{next(iter(answer['classes'].values())):.1%}"),
        Column(
            "then",
            lambda answer: ", ".join(f"{name} {share:.1%}" for name, share in [*answer["classes"].items()][1:]),
            "fold",
        ),
    ]
    print_table(answers, columns)


def _predict_rows(model: Any, files: Sequence[Path], top: int, as_json: bool) -> None:
    tables = [read_rows(file, [*getattr(model, "feature_names_in_", ())]) for file in files]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # its columns were chosen by name
        probabilities = [model.predict_proba(table) for table in tables]
    names = [*map(str, model.classes_)]
    answers: list[dict[str, Any]] = [
        {"file": "-" if file.name == "-" else str(file), "row": number, "classes": _best(names, row, top)}
        for file, rows in zip(files, probabilities, strict=True)
        for number, row in enumerate(rows)
    ]
    if as_json:
        print_json(answers)
        return
    rows = [
        dict(zip(("class", "probability"), next(iter(answer["classes"].items())), strict=True)) for answer in answers
    ]
    typer.echo(records.csv_text(rows), nl=False)


def _best(names: Sequence[str], probabilities: Any, top: int) -> dict[str, float]:
    order = np.argsort(-probabilities, kind="stable")[:top]
    return {names[i]: float(probabilities[i]) for i in order}
