"""Downloads from a server of the test's own; nothing here uses the internet."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import multiprocessing
import sys
import tarfile
import threading
import warnings
import zipfile

import numpy as np
import pytest

from annealfit import load_dataset
from annealfit._support.errors import MissingDependencyError
from annealfit.data.datasets import (
    DATASETS,
    CorruptFileError,
    DataWarning,
    DigestError,
    DownloadError,
    MissingDataError,
    StorageError,
    TruncatedFileError,
    UnsafeArchiveError,
    fetch,
    is_available,
)
from annealfit.data.datasets.catalogue import DataFile

pytest.importorskip("pooch", reason="pooch is not installed")


class Server:
    """Answers with `files`; a body may be cut short of the length that is announced."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_short: set[str] = set()
        self.unannounced: dict[str, str | None] = {}  # and the nonsense that is announced instead
        self.asked: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                body = server.files.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                length = server.unannounced.get(self.path, str(len(body)))
                if length is not None:
                    self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if self.path in server.cut_short else body)

            def log_message(self, *arguments):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.http.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEALFIT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def files_in(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*")) if directory.exists() else []


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


GENERATOR = np.random.default_rng(0)
PAYLOADS = {
    "train-images": idx(GENERATOR.integers(0, 256, (40, 28, 28))),
    "train-labels": idx(np.arange(40) % 10),
    "test-images": idx(GENERATOR.integers(0, 256, (20, 28, 28))),
    "test-labels": idx(np.arange(20) % 10),
}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def mnist(server, monkeypatch):
    """MNIST's entry with small files and two mirrors, of which only the second has them."""
    files = []
    for real, payload in zip(DATASETS["mnist"].files, PAYLOADS.values(), strict=True):
        name = real.path.rpartition("/")[2]
        addresses = (f"{server.address}/first/{name}", f"{server.address}/second/{name}")
        files.append(DataFile(real.path, addresses, sha256(payload)))
        server.files[f"/second/{name}"] = gzip.compress(payload)
    source = dataclasses.replace(DATASETS["mnist"], files=tuple(files), n_train=20, n_test=10)
    monkeypatch.setitem(DATASETS, "mnist", source)
    return source


IMAGES = "/second/train-images-idx3-ubyte.gz"


def test_the_second_mirror_serves_where_the_first_does_not(mnist, server, directory):
    assert not is_available("mnist")
    paths = fetch("mnist")
    assert [str(path.relative_to(directory)) for path in paths] == [file.path for file in mnist.files]
    assert files_in(directory) == ["mnist", *sorted(file.path for file in mnist.files)]
    assert server.asked[:2] == ["/first/train-images-idx3-ubyte.gz", IMAGES]
    assert is_available("mnist")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_dataset("mnist")
    assert data.X_train.shape == (20, 8, 8)


def test_what_is_there_is_not_downloaded_again(mnist, server, directory):
    fetch("mnist")
    server.asked.clear()
    assert len(fetch("mnist", offline=True)) == 4
    assert server.asked == []
    (directory / mnist.files[0].path).write_bytes(b"own")
    fetch("mnist")
    assert server.asked == []  # a user's own file is left alone
    fetch("mnist", force=True)
    assert gzip.decompress((directory / mnist.files[0].path).read_bytes()) == PAYLOADS["train-images"]


def test_load_dataset_downloads_only_when_asked(mnist, directory):
    with pytest.raises(MissingDataError, match="annealfit datasets fetch mnist"):
        load_dataset("mnist")
    assert load_dataset("mnist", download=True).y_test.size == 10


def test_a_mirror_may_compress_anew_or_not_at_all(mnist, server, directory):
    server.files[IMAGES] = gzip.compress(PAYLOADS["train-images"], compresslevel=1)
    server.files["/second/train-labels-idx1-ubyte.gz"] = PAYLOADS["train-labels"]
    fetch("mnist")
    assert load_dataset("mnist").X_train.shape == (20, 8, 8)


def damaged_check_sum(content):
    damaged = bytearray(content)
    damaged[-6] ^= 1
    return bytes(damaged)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda body: gzip.compress(PAYLOADS["test-images"]), DigestError, "not the official file.*payload"),
        (lambda body: body[:-20], TruncatedFileError, "cut short"),
        (damaged_check_sum, CorruptFileError, "corrupt"),
        (lambda body: None, DownloadError, "404"),
    ],
)
def test_a_bad_file_is_refused_and_nothing_is_left(mnist, server, directory, change, error, message):
    server.files[IMAGES] = change(server.files[IMAGES])
    with pytest.raises(error, match=message) as caught:
        fetch("mnist")
    assert type(caught.value) is error
    assert "Nothing incomplete is left" in str(caught.value)
    assert files_in(directory) == []


def test_a_connection_that_breaks_off(mnist, server, directory):
    server.cut_short.add(IMAGES)
    with pytest.raises(DownloadError, match="could not be downloaded"):
        fetch("mnist")
    assert files_in(directory) == []


def test_a_bad_first_mirror_does_not_stop_the_second(mnist, server, directory):
    server.files["/first/train-images-idx3-ubyte.gz"] = b"<html>Sorry</html>"
    assert len(fetch("mnist")) == 4


def test_a_failed_replacement_leaves_the_file_that_was_there(mnist, server, directory):
    fetch("mnist")
    before = {path: path.read_bytes() for path in directory.rglob("*.gz")}
    server.files[IMAGES] = gzip.compress(b"forged")
    with pytest.raises(DigestError):
        fetch("mnist", force=True)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("moment", ["download", "store"])
@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_interruption_and_a_full_disk_leave_nothing(mnist, directory, monkeypatch, moment, fault):
    def fail(*arguments):
        raise fault

    if moment == "download":

        def progress(*arguments):  # called with the first chunk, when the file is half there
            raise fault

    else:
        progress = None
        monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else StorageError) as caught:
        fetch("mnist", progress=progress)
    if caught.type is StorageError:
        assert "No space left" in str(caught.value)
        assert "ANNEALFIT_DATA" in str(caught.value)
    assert [path for path in directory.rglob("*") if not path.is_dir()] == []


def test_a_data_directory_that_is_a_file(mnist, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written to"):
        fetch("mnist", data_dir=tmp_path / "file")


def test_progress_goes_up_to_the_total(mnist, server, directory):
    calls = []
    fetch("mnist", progress=lambda *call: calls.append(call))
    total = len(server.files[IMAGES])
    own = [call for call in calls if call[0] == "train-images-idx3-ubyte.gz"]
    assert own[-1] == ("train-images-idx3-ubyte.gz", total, total)
    assert [done for _, done, _ in own] == sorted(done for _, done, _ in own)


@pytest.mark.parametrize("nonsense", [None, "abc", "-5", "1e9", "²", "9" * 5000])
def test_a_server_that_does_not_say_how_much_it_sends(mnist, server, directory, nonsense):
    server.unannounced[IMAGES] = nonsense
    calls = []
    fetch("mnist", progress=lambda *call: calls.append(call))
    assert ("train-images-idx3-ubyte.gz", len(server.files[IMAGES]), None) in calls


@pytest.mark.parametrize("announced", [True, False])
def test_a_server_that_sends_more_than_any_data_set_is_stopped(mnist, server, directory, monkeypatch, announced):
    server.files[IMAGES] = bytes(200_000)
    if not announced:
        server.unannounced[IMAGES] = None
    monkeypatch.setattr("annealfit.data.datasets.fetching.MAX_PAYLOAD_BYTES", 10_000)
    with pytest.raises(UnsafeArchiveError, match="was stopped: it sends more than the 10,000 bytes"):
        fetch("mnist")
    assert files_in(directory) == []


def test_too_large_a_file_is_refused(mnist, directory, monkeypatch):
    monkeypatch.setattr("annealfit.data.datasets.fetching.MAX_PAYLOAD_BYTES", 10)
    with pytest.raises(UnsafeArchiveError, match="sends more than the 10 bytes"):
        fetch("mnist")
    assert files_in(directory) == []


def test_offline_names_what_is_missing_and_the_remedy(mnist, server, directory):
    with pytest.raises(MissingDataError, match="offline.*mnist/train-images.*datasets fetch mnist.*ANNEALFIT_DATA"):
        fetch("mnist", offline=True)
    assert server.asked == []
    assert not directory.exists()


def test_without_pooch_the_extra_is_named(mnist, directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(MissingDependencyError, match=r"annealfit\[data\]"):
        fetch("mnist")
    assert files_in(directory) == []
    monkeypatch.delenv("ANNEALFIT_DATA")
    with pytest.raises(MissingDependencyError, match="set the environment variable ANNEALFIT_DATA"):
        load_dataset("mnist")
    assert not is_available("mnist")


def test_digits_need_no_download():
    assert fetch("digits", offline=True) == ()
    assert is_available("digits")


# Archives


def zip_of(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tar_of(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def emnist(server, monkeypatch):
    """EMNIST's entry with small files, of which every letter past J is to be left out."""
    payloads = dict(PAYLOADS)
    payloads["train-labels"] = idx(np.arange(40) % 20 + 1)
    members = {
        file.member: gzip.compress(payload)
        for file, payload in zip(DATASETS["emnist"].files, payloads.values(), strict=True)
    }
    members["gzip/emnist-digits-test-labels-idx1-ubyte.gz"] = b"not wanted"
    payloads["test-labels"] = idx(np.arange(20) % 10 + 1)
    members[DATASETS["emnist"].files[3].member] = gzip.compress(payloads["test-labels"])
    return put_archive(server, monkeypatch, "emnist", zip_of(members)), members


def put_archive(server, monkeypatch, name, content, digest=None):
    server.files["/archive"] = content
    fetched = {"addresses": (f"{server.address}/archive",), "archive_sha256": digest or sha256(content)}
    files = tuple(dataclasses.replace(file, **fetched) for file in DATASETS[name].files)
    source = dataclasses.replace(DATASETS[name], files=files, n_train=10, n_test=10)
    monkeypatch.setitem(DATASETS, name, source)
    return source


def test_wanted_members_of_a_zip_are_kept_and_their_digests_recorded(emnist, directory):
    fetch("emnist")
    source, _ = emnist
    wanted = [file.path for file in source.files]
    assert files_in(directory) == sorted(["emnist", "emnist/PAYLOAD_SHA256", *wanted])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_dataset("emnist", n_train="all", size=None)
    assert data.class_names == tuple("ABCDEFGHIJ")
    assert data.y_train.tolist() == [n % 20 for n in range(40) if n % 20 < 10]
    stored = np.frombuffer(PAYLOADS["train-images"], np.uint8, offset=16).reshape(40, 28, 28)
    np.testing.assert_array_equal(data.X_train[1], stored[1].T / 255)


def test_a_file_changed_after_the_download_is_noticed(emnist, directory):
    fetch("emnist")
    changed = bytearray(PAYLOADS["test-images"])
    changed[-1] ^= 1
    (directory / "emnist/emnist-letters-test-images-idx3-ubyte.gz").write_bytes(changed)
    with pytest.warns(DataWarning, match="emnist-letters-test-images.*payload SHA-256 .* the official is"):
        load_dataset("emnist")


def test_an_archive_whose_files_have_no_digest_must_have_its_own(emnist, server, directory):
    _, members = emnist
    server.files["/archive"] = zip_of(members | {"gzip/more": b""})
    with pytest.raises(DigestError, match="archive .* is not the official file: the SHA-256"):
        fetch("emnist")
    assert files_in(directory) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda members: zip_of(members)[:-40], CorruptFileError),
        (lambda members: b"<html>Sorry</html>", CorruptFileError),
        (lambda members: zip_of(dict(list(members.items())[1:])), CorruptFileError),
    ],
)
@pytest.mark.parametrize("digest_known", [True, False])
def test_a_bad_zip_is_refused_and_nothing_is_left(emnist, server, directory, change, error, digest_known, monkeypatch):
    _, members = emnist
    content = change(members)
    put_archive(server, monkeypatch, "emnist", content, sha256(b"another") if digest_known else None)
    with pytest.raises(error) as caught:
        fetch("emnist")
    assert type(caught.value) is error
    assert files_in(directory) == []


@pytest.fixture
def cifar10(server, monkeypatch):
    batches = {file.member: bytes([n]) + bytes(3072) for n, file in enumerate(DATASETS["cifar10"].files)}
    files = tuple(
        dataclasses.replace(file, payload_sha256=sha256(batches[file.member])) for file in DATASETS["cifar10"].files
    )
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(DATASETS["cifar10"], files=files))
    put_archive(server, monkeypatch, "cifar10", tar_of(batches), sha256(b"packed otherwise"))
    return batches


def test_an_archive_packed_anew_is_accepted_if_its_files_are_official(cifar10, directory):
    fetch("cifar10")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_dataset("cifar10", n_train="all", n_test="all", size=None, color=True)
    assert data.X_train.shape == (5, 32, 32, 3)
    assert data.y_train.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda members: tar_of(members)[:-40], TruncatedFileError),
        (lambda members: tar_of(members | {"cifar-10-batches-bin/test_batch.bin": b"other"}), DigestError),
    ],
)
def test_a_bad_tar_is_refused_and_nothing_is_left(cifar10, server, directory, change, error):
    server.files["/archive"] = change(cifar10)
    with pytest.raises(error) as caught:
        fetch("cifar10")
    assert type(caught.value) is error
    assert files_in(directory) == []


def test_a_missing_batch_is_fetched_and_warned_of_until_then(cifar10, directory):
    fetch("cifar10")
    (directory / "cifar10/cifar-10-batches-bin/data_batch_4.bin").unlink()
    with pytest.warns(DataWarning, match="fewer images without .*data_batch_4.bin"):
        assert load_dataset("cifar10", n_train="all", n_test="all").y_train.tolist() == [0, 1, 2, 4]
    # It can be loaded as it is, so loading does not insist on a connection.
    with pytest.warns(DataWarning):
        assert load_dataset("cifar10", n_train="all", n_test="all", download=True).y_train.tolist() == [0, 1, 2, 4]
    fetch("cifar10")
    assert load_dataset("cifar10", n_train="all", n_test="all").y_train.tolist() == [0, 1, 2, 3, 4]


def test_only_missing_members_are_stored(cifar10, directory):
    folder = directory / "cifar10/cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(b"a user's own")
    assert len(fetch("cifar10")) == 6
    assert (folder / "data_batch_1.bin").read_bytes() == b"a user's own"


def test_two_first_downloads_at_once(mnist, server, directory):
    """Both find no directory, and both end with the official files and nothing else."""
    context = multiprocessing.get_context("fork")
    programs = [context.Process(target=fetch, args=("mnist",)) for _ in range(4)]
    for program in programs:
        program.start()
    for program in programs:
        program.join(60)
    assert [program.exitcode for program in programs] == [0] * 4
    assert is_available("mnist")
    assert not [name for name in files_in(directory) if name.endswith(".part")]
    assert load_dataset("mnist", n_train=10, n_test=10).X_train.shape == (10, 8, 8)
