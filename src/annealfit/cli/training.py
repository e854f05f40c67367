"""The command that trains."""

from __future__ import annotations

import shlex
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from annealfit import __version__
from annealfit._support.description import describe
from annealfit._support.errors import InvalidInputError
from annealfit.cli.display import errors, plain, training_progress
from annealfit.cli.large_data import Asked, Where, opened_job
from annealfit.cli.options import (
    BaselinesOption,
    BitsOption,
    BlocksOption,
    ColorOption,
    DatasetArgument,
    DownloadOption,
    HistoryFormat,
    ImagesOption,
    JsonOption,
    KernelsOption,
    LabelsOption,
    LayersOption,
    OnDiskOption,
    PoolsOption,
    Preset,
    PresetOption,
    RegularizationOption,
    ResizeOption,
    SamplerOption,
    SchedulerOption,
    SeedOption,
    SettingsOption,
    SizeOption,
    StandardizeOption,
    TestSizeOption,
    TimeLimitOption,
    TolOption,
    TrainFiltersOption,
    TrainSizeOption,
    parse_settings,
    parse_sizes,
    parse_subset,
)
from annealfit.cli.preparing import make_classifier, make_network
from annealfit.cli.run_output import draw_run, tell_run
from annealfit.cli.sampling import choose_sampler, describe_plan
from annealfit.studies import store


def train(
    dataset: DatasetArgument,
    preset: PresetOption = Preset.annealfit,
    bits: BitsOption = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations at most.")] = None,
    filters: LayersOption = "2",
    kernel: KernelsOption = "3",
    pool: PoolsOption = "2",
    train_filters: TrainFiltersOption = False,
    regularization: RegularizationOption = None,
    tol: TolOption = None,
    time_limit: TimeLimitOption = None,
    settings: SettingsOption = None,
    standardize: StandardizeOption = "none",
    sampler: SamplerOption = None,
    blocks: BlocksOption = None,
    labels: LabelsOption = None,
    size: SizeOption = 8,
    color: ColorOption = False,
    resize: ResizeOption = "area",
    images: ImagesOption = None,
    n_train: TrainSizeOption = None,
    n_test: TestSizeOption = None,
    on_disk: OnDiskOption = False,
    scheduler: SchedulerOption = None,
    baselines: BaselinesOption = None,
    download: DownloadOption = False,
    seed: SeedOption = 42,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: a new one below runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    history: Annotated[HistoryFormat, typer.Option(help="File format of the history.")] = HistoryFormat("csv"),
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the run.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Train by annealing, with classical training beside it.

    Draws random convolution features, or takes the rows of a table as they are, trains the classifier head
    by QUBO solves, prints one table, and leaves a run folder: model, configuration, history, metrics, plots.
    Ctrl-C ends the training early and keeps what was learnt; --resume goes on from there. With
    --train-filters the filters are trained by QUBO solves too, and the folder has pictures of them.

    Examples of use:

      annealfit train digits

      annealfit train digits --preset matched --bits 10 --out runs/matched

      annealfit train digits --train-filters --filters 4

      annealfit train mnist --download --filters 8 --n-train all --n-test all

      annealfit train embeddings.npy --labels labels.npy --standardize features

      annealfit train rows.parquet --labels kind --scheduler tcp://10.0.0.1:8786

      annealfit train digits --bits 2 --sampler mock-qpu:topology=Z12,faults=0.1
    """
    folder = out or Path("runs") / f"{Path(dataset).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    _check_resumable(out, resume)
    sizes: dict[str, Any] = {
        "n_filters": parse_sizes(filters, "--filters"),
        "kernel_size": parse_sizes(kernel, "--kernel"),
        "pool_size": parse_sizes(pool, "--pool"),
        "standardize": standardize,
    }
    classifier: Any = (make_network if train_filters else make_classifier)(preset, bits, max_iter, seed)
    given = {"regularization": regularization, "tol": tol, "time_limit": time_limit}
    classifier.set_params(**{n: v for n, v in given.items() if v is not None}, **parse_settings(settings, classifier))
    used = choose_sampler(sampler, blocks, classifier.sampler, seed)
    classifier.set_params(sampler=used)
    subset = parse_subset(images, n_train, n_test)
    asked = Asked(dataset, labels, size, color, resize, subset, download, seed)
    where = Where(train_filters, on_disk, scheduler, baselines)
    again = shlex.join([*sys.argv[1:], *([] if out else ["--out", str(folder)]), *([] if resume else ["--resume"])])
    # A sampler may have a connection to close; features on a disk are in a folder that is removed in the end.
    with used, opened_job(asked, sizes, classifier, where) as job:
        config = {**asked.config(), "preset": str(preset), "annealfit": __version__, "features": job.features}
        config["classifier"] = describe(classifier.get_params(deep=False))
        # Bad settings, or a problem that does not fit the device, fail before any file is made or any call paid for.
        plan = classifier.preflight(job.X_train, job.y_train)
        if plan is not None:
            errors.print(plain(describe_plan(plan, classifier.max_iter, of_layers=train_filters)), soft_wrap=True)
        with store.opened_run_folder(folder, config, resume=resume):
            classifier.set_params(checkpoint=folder / store.CHECKPOINT_FILE, resume=resume)
            try:
                with training_progress(classifier.max_iter) as on_iteration, warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # what they say is in the table and the notes below
                    run = job.run([on_iteration])
                store.save_run(run, folder, config, history_format=history)
            except KeyboardInterrupt:  # before or after the iterations: during them, what was learnt is kept
                if (folder / store.CHECKPOINT_FILE).exists():
                    errors.print(plain(f"Interrupted. What was learnt is in {folder}. Go on with:\nannealfit {again}"))
                else:
                    errors.print("Interrupted before the first iteration: there is nothing to resume; start it again.")
                raise typer.Exit(130) from None
    notes = [*job.notes(run), *(draw_run(run, folder) if plots else [])]
    tell_run(run, folder, again, notes, as_json=as_json)


def _check_resumable(out: Path | None, resume: bool) -> None:
    if resume and (out is None or not (out / store.CHECKPOINT_FILE).exists()):
        raise InvalidInputError(
            "--resume needs --out, the folder of the run to continue"
            if out is None
            else f"--resume: there is no run to continue in {out}; check the name, or leave --resume out to start one"
        )
