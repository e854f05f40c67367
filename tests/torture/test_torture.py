"""The campaign in short: some attacks of every kind, and the rows of the table stay at zero where they have to."""

import contextlib
import io
import os
import threading
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import campaigns
import data_attacks
import file_attacks
import number_attacks
import numpy as np
import pytest
import sampler_attacks
from outcomes import Tally
from PIL import Image
from sklearn.datasets import load_iris

from annealfit import AnnealedClassifier, Checkpoint
from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import (
    FORMAT_VERSION,
    part_file,
    read_arrays,
    read_tensors,
    remove_leftovers,
    replacing,
    working_in,
    write_tensors,
)
from annealfit.data.datasets.images import read_image
from annealfit.problems import export
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import MockQPU, QPUSampler
from annealfit.studies.records import RunSpec, Store

pytestmark = pytest.mark.long


def check(tally):
    assert tally.is_clean, "\n".join(tally.examples)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return file_attacks.targets(tmp_path_factory.mktemp("files"))


def test_damaged_bytes_are_noticed(targets):
    others = [target.path.read_bytes() for target in targets]
    for target in targets:
        check(file_attacks.attack_bytes(target, 40, 1, others))


def test_no_bit_changes_unnoticed(targets):
    for target in targets:
        check(file_attacks.attack_bits(target, step=8 * target.path.stat().st_size // 60))


def test_other_values_are_refused_or_usable(targets):
    for target in targets:
        if target.kind is not None:
            check(file_attacks.attack_fields(target, 40, 1))


def test_samplers_that_lie():
    check(sampler_attacks.attack_training(1, len(sampler_attacks.LIES)))


def test_every_paid_call_is_in_the_history():
    check(sampler_attacks.attack_device(1, 3))


def test_bounds_and_trainings_at_the_edges(tmp_path):
    check(number_attacks.attack_bounds(1, 20))
    check(number_attacks.attack_trainings(1, 0.01))
    check(number_attacks.attack_units(1, 8))
    check(number_attacks.attack_layers(1, 8))
    check(number_attacks.attack_side_by_side(1, 1))
    check(number_attacks.attack_proofs(1, 40))
    check(number_attacks.attack_exports(tmp_path, 1, 6))
    check(number_attacks.attack_arrays(1, 12))


def test_hostile_texts(tmp_path):
    check(data_attacks.attack_texts(tmp_path, 1, 9))


def test_damaged_things_that_users_bring(tmp_path):
    for attack in data_attacks.attack_inputs(tmp_path, 30, 1):
        check(attack())
    check(data_attacks.attack_columns(tmp_path, 10, 1))


def test_errors_name_the_file_and_the_field(targets, tmp_path):
    model = targets[0]
    tensors, manifest = read_tensors(model.path, "classifier")
    write_tensors(tmp_path / "bad", "classifier", tensors.tensors, {**manifest.value, "n_iter": -1})
    with pytest.raises(FileFormatError, match=r"bad: its field n_iter is -1; expected a whole number, at least 0"):
        AnnealedClassifier.load(tmp_path / "bad")
    write_tensors(tmp_path / "nan", "classifier", {**tensors.tensors, "coef": np.full((3, 4), np.nan)}, manifest.value)
    with pytest.raises(FileFormatError, match=r"nan: its tensor coef holds NaN"):
        AnnealedClassifier.load(tmp_path / "nan")


def test_a_file_of_a_later_version_is_refused(targets, tmp_path, monkeypatch):
    tensors, manifest = read_tensors(targets[0].path, "classifier")
    monkeypatch.setattr("annealfit._support.files.FORMAT_VERSION", FORMAT_VERSION + 1)
    write_tensors(tmp_path / "later", "classifier", tensors.tensors, manifest.value)
    with pytest.raises(FileFormatError, match="update annealfit"):
        AnnealedClassifier.load(tmp_path / "later")


def test_a_record_under_another_name_is_not_taken_for_it(targets, tmp_path):
    record = next(target for target in targets if target.name == "record")
    other = RunSpec("digits", "qubo", 43, "matched", 5, max_iter=3)
    store = Store(tmp_path)
    store.path(other).parent.mkdir()
    store.path(other).write_bytes(record.path.read_bytes())
    assert not store.is_done(other)
    with pytest.warns(UserWarning, match="the record of another run"):
        assert store.records() == []


def test_no_name_of_a_data_set_leads_out_of_the_folder(tmp_path):
    path = Store(tmp_path).path(RunSpec("../../outside/" + "x" * 300, "optimum", 1))
    assert path.parent == tmp_path / "records"
    assert len(path.name) < 200


def test_one_process_per_folder(tmp_path):
    in_use = pytest.raises(InvalidInputError, match=rf"in use by process {os.getpid()}")
    with working_in(tmp_path), in_use, working_in(tmp_path):
        pass
    with working_in(tmp_path):  # and again
        pass
    assert list(tmp_path.iterdir()) == []


def test_only_files_without_an_owner_are_leftovers(tmp_path):
    (tmp_path / ".left.0123.part").write_text("half")
    with part_file(tmp_path / "mine") as (_, mine):
        assert remove_leftovers(tmp_path) == [tmp_path / ".left.0123.part"]
        assert mine.exists()
    assert list(tmp_path.iterdir()) == []


def test_new_files_have_the_usual_permissions_and_old_ones_theirs(tmp_path):
    umask = os.umask(0o027)
    try:
        with replacing(tmp_path / "new") as file:
            file.write(b"1")
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
        (tmp_path / "new").chmod(0o600)
        with replacing(tmp_path / "new") as file:
            file.write(b"2")
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(umask)


def test_pipes_and_devices_are_written_to_and_links_followed(tmp_path):
    problem = QuadraticProblem(np.eye(2), np.ones(2), Encoding(bits=1, range=0.5))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidInputError, match="a pipe without a reader"):
        export.write(problem, pipe, format="coo")
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    while not received:  # the reader opens it in its own time
        try:
            export.write(problem, pipe, format="coo")
            break
        except InvalidInputError:
            continue
    reader.join()
    assert received[0].startswith(b"# annealfit vartype=BINARY")
    assert pipe.is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    export.write(problem, tmp_path / "link", format="coo")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").is_file()
    with pytest.raises(FileFormatError, match="pipe or a device"):
        read_image(pipe)


def test_a_budget_survives_a_resume(tmp_path):
    X, y = load_iris(return_X_y=True)
    options = {"bits": 1, "random_state": 0, "tol": 0.0, "max_iter": 2}
    path = tmp_path / "checkpoint.safetensors"

    def sampler():
        return QPUSampler(MockQPU("Z12", seed=1), num_reads=5, max_access_seconds=10.0)

    first = AnnealedClassifier(sampler=sampler(), checkpoint=path, **options).fit(X, y)
    spent = sum(row["access_seconds"] for row in first.history_)
    again = sampler()
    AnnealedClassifier(sampler=again, checkpoint=Checkpoint(path, resume=True), **options).fit(X, y)
    assert again.access_seconds == spent > 0


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", X=np.zeros((1000, 128, 128)), y=np.zeros(1000, int))
    with pytest.raises(FileFormatError, match="unpacks from"):
        data_attacks.read_own(Path(tmp_path / "bomb.npz"))


def _stating(content, field, value):
    """The archive with another number in a field of its directory: an offset from the directory's or its end's mark."""
    mark, offset = field
    place = content.rindex(mark) + offset
    return content[:place] + value.to_bytes(4, "little") + content[place + 4 :]


@contextlib.contextmanager
def room_for(limit):
    """Fail if more bytes than that are in use at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "field",
    [(b"PK\x05\x06", 12), (b"PK\x05\x06", 16), (b"PK\x01\x02", 20), (b"PK\x01\x02", 24), (b"PK\x01\x02", 42)],
    ids=["size of the directory", "place of the directory", "packed size", "unpacked size", "place of a member"],
)
def test_no_number_of_an_archive_makes_room_for_gigabytes(tmp_path, field):
    np.savez(tmp_path / "whole.npz", X=np.zeros((10, 4)))
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "states.npz").write_bytes(_stating(content, field, 0xF0000000))
    with room_for(2**24), contextlib.suppress(FileFormatError):
        read_arrays(tmp_path / "states.npz")


def test_a_member_that_is_more_than_it_states_is_not_unpacked_whole(tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", X=np.zeros(2**24))
    content = (tmp_path / "bomb.npz").read_bytes()
    (tmp_path / "states.npz").write_bytes(_stating(content, (b"PK\x01\x02", 24), 5000))
    with room_for(2**24), pytest.raises(FileFormatError):
        read_arrays(tmp_path / "states.npz")


def test_elements_without_bytes_make_no_room(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|S0", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "empty.npz", "w") as archive:
        archive.writestr("X.npy", header.getvalue())
    with room_for(2**24), pytest.raises(FileFormatError, match="have no bytes"):
        read_arrays(tmp_path / "empty.npz")


def test_an_image_of_too_many_pixels_is_refused_before_room_is_made_for_them(tmp_path):
    stream = io.BytesIO()
    Image.new("L", (9, 12)).save(stream, format="PNG")
    head = b"IHDR" + (20_000).to_bytes(4, "big") + (8_000).to_bytes(4, "big") + stream.getvalue()[24:29]
    content = stream.getvalue()[:12] + head + zlib.crc32(head).to_bytes(4, "big") + stream.getvalue()[33:]
    (tmp_path / "large.png").write_bytes(content)
    with pytest.raises(FileFormatError, match="20000 × 8000 pixels, and 24,000,000 are the most"):
        read_image(tmp_path / "large.png")


def test_no_part_of_an_image_makes_room_for_gigabytes(tmp_path):
    stream = io.BytesIO()
    Image.new("L", (9, 12)).save(stream, format="PNG")
    content = stream.getvalue()
    place = content.index(b"IDAT") - 4
    (tmp_path / "states.png").write_bytes(content[:place] + (0x70000000).to_bytes(4, "big") + content[place + 4 :])
    with room_for(2**24), contextlib.suppress(FileFormatError):
        read_image(tmp_path / "states.png")


def test_enormous_weights_of_a_checkpoint_end_in_a_sentence(targets):
    for target in targets:
        if target.kind == "training checkpoint":
            tensors, manifest = read_tensors(target.path, target.kind)
            tally, scratch = file_attacks.Tally(target.name), target.path.parent / "enormous.safetensors"
            for name in [name for name in tensors.tensors if name.endswith(("weights", "remembered"))]:
                changed = np.full_like(tensors.tensors[name], 1e160)
                write_tensors(scratch, target.kind, {**tensors.tensors, name: changed}, manifest.value)
                file_attacks.attempt(tally, name, lambda target=target: target.read(scratch), target.use)  # noqa: B023
            check(tally)
            assert tally.clean > 0


def test_a_campaign_that_was_interrupted_goes_on_where_it_was(tmp_path, monkeypatch):
    """Parts with the same seed, share and sources are not run again; a line that was cut short is."""
    results, done = tmp_path / "results.jsonl", []

    def parts(folder, seed, share):
        for name in ("one", "two"):
            yield lambda name=name: done.append(name) or Tally(name, tried=1, right=1)

    monkeypatch.setitem(campaigns.CAMPAIGNS, "some", parts)
    run = campaigns.identity(1, 0.5)
    campaigns.run_campaign("some", run, results)
    campaigns.run_campaign("some", run, results)
    assert done == ["one", "two"]
    results.write_text(results.read_text()[:-9])
    campaigns.run_campaign("some", run, results)
    assert done == ["one", "two", "two"]
    assert len(campaigns.rows_of(results)) == 2
    campaigns.run_campaign("some", campaigns.identity(2, 0.5), results)
    assert done[3:] == ["one", "two"]
