"""The command that rounds the weights of an ONNX network to a few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.progress import MofNCompleteColumn, TimeElapsedColumn
from typer import Argument, Option

from annealfit._support.errors import InvalidInputError
from annealfit.cli import options
from annealfit.cli.output import Column, errors, pick, plain, print_json, print_table, progress_bar, say
from annealfit.quantization.grids import GRIDS

if TYPE_CHECKING:
    from annealfit.quantization.comparison import Compared
    from annealfit.quantization.network import QuantizedNetwork
    from annealfit.quantization.sensitivity import Fidelity
    from annealfit.samplers import Sampler

_METHODS = "nearest, gptq, gptq_search, descent, annealed, lattice"


def quantize(
    model: Annotated[Path, Argument(metavar="MODEL.onnx", help="The trained network.")],
    calibration: Annotated[
        Path,
        Option(
            metavar="FILE",
            help="Inputs of the network: an npy file of hundreds of rows, better thousands; or an npz file with an "
            "array for each input.",
        ),
    ],
    bits: Annotated[int | None, Option(help="Bits per weight, 1 to 8.", show_default="2")] = None,
    mean_bits: Annotated[
        float | None,
        Option(help="Instead: 1, 2, 4 or 8 bits in each layer, where they matter; at most so many in the mean."),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            "-o",
            "--output",
            metavar="FILE.onnx",
            help="Where the network goes: a file with packed weights, which onnxruntime runs.",
            show_default="nothing is written",
        ),
    ] = None,
    method: Annotated[
        str | None, Option(metavar="NAME", help=f"How levels are chosen: {_METHODS}.", show_default="annealed")
    ] = None,
    sampler: Annotated[
        str | None,
        Option(
            metavar="NAME[:SETTING=VALUE,…]", help="A sampler that chooses the levels instead, as of annealfit train."
        ),
    ] = None,
    blocks: options.Blocks = None,
    levels: Annotated[str, Option(metavar="NAME", help=f"Which levels: {', '.join(GRIDS)}.")] = "symmetric",
    group_size: Annotated[int | None, Option(help="Inputs per scale.", show_default="one scale per output")] = None,
    damping: Annotated[
        float | None,
        Option(help="Assumed noise, as a share of the inputs' power.", show_default="0.2 where rows are held out"),
    ] = None,
    validation: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Rows to choose on and to measure on, as of --calibration.",
            show_default="every fifth calibration row",
        ),
    ] = None,
    time_limit: Annotated[
        float | None, Option(help="Seconds after which layers are rounded without annealing.", show_default="none")
    ] = None,
    refit: Annotated[
        bool, Option(help="Fit scales and biases to the float network's outputs, as far as it helps on held-out rows.")
    ] = True,
    compare: Annotated[
        bool, Option("--compare", help="Quantise by GPTQ and others, too, and print all of them side by side.")
    ] = False,
    keep: Annotated[list[str] | None, Option(metavar="NODE", help="A node to leave as it is; can be repeated.")] = None,
    seed: Annotated[int, Option(help="Decides every anneal.")] = 0,
    plot: Annotated[Path | None, Option(metavar="FILE", help="Draw the errors: png, svg or pdf.")] = None,
    as_json: options.Json = False,
) -> None:
    """Round a trained network's weights to a few bits each.

    The bits are chosen so that the network's outputs change as little as possible. Layers (MatMul, Gemm and Conv) are
    quantised one after another, each with the inputs that the quantised layers before it produce. Errors count by what
    they do to the network's answer, those of a layer's outputs together where that helps on held-out rows. At 1 and
    2 bits annealing has a fraction of GPTQ's error; at 3 bits and more there is little left to win. The written file is
    small: levels are packed in it, and onnxruntime unpacks them when it opens it. What stays float is named first.

    Examples of use:

    \b
      annealfit quantize model.onnx --bits 2 --calibration X.npy -o small.onnx
      annealfit quantize model.onnx --bits 2 --levels ternary --calibration X.npy
      annealfit quantize model.onnx --bits 1 --calibration X.npy --sampler levels
    """
    from annealfit.quantization.comparison import Compared, compare_methods
    from annealfit.quantization.network import quantize_network
    from annealfit.quantization.onnx_graph import OnnxGraph, find_layers
    from annealfit.studies.report.drawing import check_picture, save_layer_errors

    if bits is not None and mean_bits is not None:
        raise InvalidInputError("--bits is for all layers, --mean-bits chooses them layer by layer; give one of them")
    if output is not None and output.suffix.lower() != ".onnx":
        raise InvalidInputError(f"{output.name} does not end in onnx, which is what is written: {output.stem}.onnx")
    if output is not None and output.resolve() == model.resolve():
        raise InvalidInputError(f"{output} is the network itself; write to another file")
    if plot is not None:
        check_picture(plot)
    if not as_json:
        _say_floats(find_layers(OnnxGraph(model), keep or ())[1])
    columns = MofNCompleteColumn(), TimeElapsedColumn()
    with (
        _method(method, sampler, blocks, seed) as chosen,  # a sampler may have a connection to close
        progress_bar("Quantising {task.description}", *columns, description="…") as update,
    ):

        def say_method(name: str) -> None:
            update(description=name)

        def told(number: int, total: int, name: str) -> None:
            update(completed=number, total=total, description=plain(name))
            if not (errors.is_terminal or as_json):
                errors.print(
                    f"Quantising, step {number + 1} of {total}: layer {plain(name)}", highlight=False, soft_wrap=True
                )

        found = quantize_network(
            model,
            calibration,
            2 if bits is None else bits,
            mean_bits=mean_bits,
            method=chosen,
            levels=levels,
            group_size=group_size,
            damping=damping,
            validation=validation,
            refit=refit,
            keep=keep or (),
            time_limit=time_limit,
            random_state=seed,
            on_layer=told,
        )
        compared = list[Compared]()
        if compare:
            same = {"levels": levels, "group_size": group_size, "keep": keep or (), "validation": validation}
            compared = compare_methods(found, model, calibration, on_method=say_method, **same)
    written = [] if output is None else [found.save(output)]
    if plot is not None:
        title = f"{model.name}, {found.layers[0].grid.count} levels per weight"
        names, by_layer = [layer.name for layer in found], [layer.errors for layer in found]
        written.append(save_layer_errors(names, by_layer, plot, title))
    if as_json:
        print_json(_describe(found, written) | ({"compared": [asdict(one) for one in compared]} if compare else {}))
    else:
        _print(found, written)
        if compared:
            _print_compared(compared)


def _method(
    method: str | None, sampler: str | None, blocks: int | None, seed: int
) -> AbstractContextManager[str | Sampler]:
    if sampler is None and blocks is not None:
        raise InvalidInputError("--blocks is for the problems of a sampler; name one with --sampler")
    if sampler is None:
        return nullcontext(method or "annealed")
    if method is not None:
        raise InvalidInputError(
            f"--sampler {sampler} chooses the levels instead of --method {method}; give one of them"
        )
    return options.make_sampler(sampler, blocks, None, seed)


def _error_column(method: str) -> Column:
    return Column(method.replace("_", " "), lambda layer: f"{layer.errors[method]:.3g}")


def _print(found: QuantizedNetwork, written: Sequence[Path]) -> None:
    columns = [
        Column("layer", lambda layer: layer.name, "fold"),
        Column("operator", lambda layer: layer.operator, "left"),
        Column("weights", lambda layer: "×".join(map(str, layer.weights.shape))),
        *map(_error_column, found.layers[0].errors),
        Column("kept", lambda layer: f"{layer.error:.3g}"),
        Column("bits", lambda layer: str(layer.grid.storage_bits)),
        Column("damping", lambda layer: f"{layer.damping:g}"),
        Column("along", lambda layer: layer.objective, "left"),
        Column("bytes", lambda layer: f"{layer.bytes_before:,} → {layer.bytes_after:,}"),
        Column("seconds", lambda layer: f"{sum(layer.seconds.values()):.1f}"),
    ]
    print_table(list(found), columns, title="Squared error of each layer's outputs, relative")
    if any(layer.objective != "layer" for layer in found):
        say("Errors count by what they do to the network's answer: rows and positions, along the loss outputs, too.")
    for name, operator in found.unknown.items():
        say(f"Along its own error: {plain(name)} (no derivative of {plain(operator)} is known)")
    own = found.held_out
    rows = [("calibration", found.divergence, found.output_error, found.agreement)]
    rows += [] if own is None else [(f"{own.rows} held-out", own.divergence, own.error, own.agreement)]
    for kind, divergence, error, agreement in rows:
        same = "" if agreement is None else f", the largest output is the same for {agreement:.1%}"
        say(f"Network, {kind} rows: divergence {divergence:.3g}, error of the outputs {error:.3g}{same}.")
    say(f"Bits per weight in the mean, scales counted: {found.mean_bits:.3g}.")
    ratio = found.bytes_before / max(found.bytes_after, 1)
    change = f"{ratio:.1f} times smaller" if ratio > 1 else "a network this small does not gain by packing"
    say(f"File: {found.bytes_before:,} bytes before, {found.bytes_after:,} packed: {change}.")
    _say_floats(found.floats)
    for path in written:
        say(f"Written: {path}")
    if not written:
        say("Add -o FILE.onnx to write the network, --plot FILE.png for a figure.")


def _print_compared(compared: Sequence[Compared]) -> None:
    def told(number: Callable[[Fidelity], str]) -> Callable[[Compared], str]:
        return lambda one: "–" if one.fidelity is None else number(one.fidelity)

    columns = [
        Column("method", lambda one: one.method, "left"),
        Column("divergence", told(lambda own: f"{own.divergence:.3g}")),
        Column("agreement", told(lambda own: "–" if own.agreement is None else f"{own.agreement:.1%}")),
        Column("error of the outputs", told(lambda own: f"{own.error:.3g}")),
        Column("bytes", lambda one: f"{one.n_bytes:,}" if one.fidelity else "–"),
        Column("processor seconds", lambda one: f"{one.seconds:.1f}" if one.fidelity else "–"),
    ]
    print_table(compared, columns, title="On the held-out rows; only the method with choices has seen them")
    for one in compared:
        if one.failure:
            say(f"{one.method}: {plain(one.failure)}")


def _say_floats(floats: Mapping[str, str]) -> None:
    for name, reason in floats.items():
        say(f"Stays float: {plain(name)} ({plain(reason)})")


def _describe(found: QuantizedNetwork, written: Sequence[Path]) -> dict[str, Any]:
    return {
        "layers": [
            {
                **pick(layer, "name", "operator"),
                "shape": list(layer.weights.shape),
                "levels": layer.grid.levels.tolist(),
                **pick(layer, "errors", "error", "damping", "objective", "bytes_before", "bytes_after"),
                "seconds": sum(layer.seconds.values()),
            }
            for layer in found
        ],
        "floats": dict(found.floats),
        "unknown": dict(found.unknown),
        **pick(found, "output_error", "agreement", "divergence", "mean_bits", "bytes_before", "bytes_after"),
        "held_out": None if found.held_out is None else asdict(found.held_out),
        "written": [str(path) for path in written],
    }
