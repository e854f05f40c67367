"""Bytes that are not trusted: gzip, archives, IDX and CIFAR-10."""

import gzip
import io
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from annealfit.data.datasets import CorruptFileError, TruncatedFileError, UnsafeArchiveError, formats
from annealfit.data.datasets.formats import decompress, parse_cifar10, parse_idx, read_members, read_payload


def idx(array: np.ndarray, code: int = 0x08) -> bytes:
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_comes_back_plain_or_gzipped(tmp_path, suffix):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(idx(IMAGES)) if suffix else idx(IMAGES))
    np.testing.assert_array_equal(parse_idx(read_payload(path), "images", 3), IMAGES)


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        (b"", TruncatedFileError, "0 bytes, header and sizes need 16"),
        (idx(IMAGES)[:10], TruncatedFileError, "10 bytes"),
        (idx(IMAGES)[:-1], TruncatedFileError, "39 bytes, 2 × 3 × 4 values need 40"),
        (idx(IMAGES) + b"\0", CorruptFileError, "1 bytes too many"),
        (b"\x89PNG" + idx(IMAGES), CorruptFileError, "not an IDX file of 3 dimensions: it starts with 89 50 4e 47"),
        (idx(IMAGES, 0x07), CorruptFileError, "not an IDX file"),
        (idx(IMAGES[0]) + b"\0" * 8, CorruptFileError, "not an IDX file of 3 dimensions: it starts with 00 00 08 02"),
    ],
)
def test_bad_idx(payload, error, message):
    with pytest.raises(error, match=message):
        parse_idx(payload, "images", 3)


def test_gzip_cut_short_at_any_byte_is_truncated():
    whole = gzip.compress(idx(IMAGES))
    for length in range(2, len(whole)):
        with pytest.raises(TruncatedFileError, match="cut short"):
            decompress(io.BytesIO(whole[:length]), "images.gz")


def test_gzip_with_a_changed_byte_is_corrupt():
    damaged = bytearray(gzip.compress(bytes(range(256)) * 20))
    damaged[-6] ^= 1  # in the check sum
    with pytest.raises(CorruptFileError, match="corrupt"):
        decompress(io.BytesIO(damaged), "images.gz")


def test_a_decompression_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "MAX_PAYLOAD_BYTES", 1000)
    with pytest.raises(CorruptFileError, match="more than 1000 bytes"):
        decompress(io.BytesIO(gzip.compress(bytes(10_000))), "bomb.gz")


def test_cifar_planes_become_channels():
    record = bytes([3]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes(range(32)) * 32
    images, labels = parse_cifar10(record * 2, "batch")
    assert labels.tolist() == [3, 3]
    assert images.shape == (2, 32, 32, 3)
    assert images[1, 5, 7].tolist() == [10, 20, 7]  # red, green, and blue that is the column


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        (b"", TruncatedFileError, "0 bytes"),
        (bytes(3073 + 5), TruncatedFileError, "3078 bytes, records of 3073 bytes need 6146"),
        (bytes([10]) + bytes(3072), CorruptFileError, "label 10, CIFAR-10 has 0 to 9"),
    ],
)
def test_bad_cifar(payload, error, message):
    with pytest.raises(error, match=message):
        parse_cifar10(payload, "batch")


# Archives


def zip_of(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("wanted", b"content")
        archive.writestr("../outside", b"evil")
        archive.writestr("folder/", b"")


def tar_of(path):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("../outside", b"evil"), ("wanted", b"content")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)


@pytest.fixture(params=[zip_of, tar_of])
def archive(request, tmp_path):
    request.param(tmp_path / "archive")
    return tmp_path / "archive"


@pytest.mark.parametrize("damage", ["place", "name"])
def test_a_zip_with_a_damaged_directory_is_named(tmp_path, damage):
    """Python's module tells so by an OSError, which is not one of the disk, and by a UnicodeDecodeError."""
    zip_of(tmp_path / "a.zip")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    if damage == "place":
        content[content.rfind(b"PK\5\6") + 16 + 3] = 200
    else:
        place = content.find(b"PK\1\2")
        content[place + 9] |= 8  # the name is UTF-8
        content[place + 46] = 0xB9
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CorruptFileError, match="archive is not a whole zip"):
        read(tmp_path / "a.zip")


def read(path, member="wanted"):
    return read_members(path, [member], "archive")[member]


def test_a_member_is_read_and_nothing_is_unpacked(archive):
    assert read(archive) == b"content"
    assert [path.name for path in archive.parent.iterdir()] == ["archive"]


def test_too_large_a_member_is_refused(archive, monkeypatch):
    monkeypatch.setattr(formats, "MAX_PAYLOAD_BYTES", 6)
    with pytest.raises(UnsafeArchiveError, match="more than 6 bytes"):
        read(archive)


def test_a_damaged_archive_is_refused(archive):
    whole = archive.read_bytes()
    for content in (whole[:60], b"<html>Sorry</html>", b"", whole.replace(b"content", b"contend")[: len(whole) - 30]):
        archive.write_bytes(content)
        with pytest.raises(
            (TruncatedFileError, CorruptFileError),
            match=r"^archive (was cut short|is not a whole zip or tar archive: .*); get it again$",
        ):
            read(archive, "folder")


def test_a_member_that_is_not_there(archive):
    with pytest.raises(CorruptFileError, match="lacks a member.*other"):
        read(archive, "other")


def test_a_folder_is_not_a_file(tmp_path):
    tar_of(tmp_path / "tar")
    with pytest.raises(CorruptFileError, match="not a file"):
        read(tmp_path / "tar", "folder")
