import io
import tarfile
import zipfile

import pytest

from annealfit.data.datasets import CorruptFileError, TruncatedFileError, UnsafeArchiveError, unpacking
from annealfit.data.datasets.unpacking import unpack


def zip_of(path, *members, link=False):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("wanted", *members):
            info = zipfile.ZipInfo(name)
            if link and name != "wanted":
                info.external_attr = 0o120777 << 16
            archive.writestr(info, b"content")


def tar_of(path, *members, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz") as archive:
        for name in ("wanted", *members):
            info = tarfile.TarInfo(name)
            info.size = len(b"content")
            if name != "wanted" and kind != tarfile.REGTYPE:
                info.type, info.linkname, info.size = kind, "/etc/passwd", 0
            archive.addfile(info, io.BytesIO(b"content"))


MAKERS = {"zip": zip_of, "tar": tar_of}
ESCAPES = [
    "../outside",
    "/outside",
    "folder/../../outside",
    "..\\outside",
    "C:\\outside",
    "C:outside",
    "\\\\host\\share\\x",
]


@pytest.fixture(params=sorted(MAKERS))
def packing(request):
    return request.param


def read(path, packing, member="wanted"):
    with unpack(path, packing, "archive") as read_member:
        return read_member(member)


def test_a_member_is_read(tmp_path, packing):
    MAKERS[packing](tmp_path / "archive", "folder/another")
    assert read(tmp_path / "archive", packing) == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_path_that_leads_out_is_refused_even_if_not_wanted(tmp_path, packing, escape):
    MAKERS[packing](tmp_path / "archive", escape)
    with pytest.raises(UnsafeArchiveError, match="outside its folder"):
        read(tmp_path / "archive", packing)


def test_links_and_devices_are_refused(tmp_path):
    zip_of(tmp_path / "zip", "link", link=True)
    with pytest.raises(UnsafeArchiveError, match="'link' is a link"):
        read(tmp_path / "zip", "zip")
    for kind, word in ((tarfile.SYMTYPE, "a link"), (tarfile.LNKTYPE, "a link"), (tarfile.FIFOTYPE, "neither")):
        tar_of(tmp_path / "tar", "link", kind=kind)
        with pytest.raises(UnsafeArchiveError, match=word):
            read(tmp_path / "tar", "tar")


@pytest.mark.parametrize(("limit", "value"), [("MAX_PAYLOAD_BYTES", 6), ("MAX_ARCHIVE_BYTES", 13)])
def test_too_large_a_member_or_sum_is_refused(tmp_path, packing, monkeypatch, limit, value):
    MAKERS[packing](tmp_path / "archive", "another")
    monkeypatch.setattr(unpacking, limit, value)
    with pytest.raises(UnsafeArchiveError, match="more than any data set"):
        read(tmp_path / "archive", packing)


def test_too_large_a_plain_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"content")
    assert read(tmp_path / "file", "none") == b"content"
    monkeypatch.setattr(unpacking, "MAX_PAYLOAD_BYTES", 6)
    with pytest.raises(UnsafeArchiveError, match="larger than 6 bytes"):
        read(tmp_path / "file", "none")


def test_cut_short(tmp_path, packing):
    path = tmp_path / "archive"
    MAKERS[packing](path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TruncatedFileError, match="cut short"):
        read(path, packing)


def test_not_an_archive(tmp_path, packing):
    (tmp_path / "archive").write_bytes(b"<html>Sorry</html>")
    with pytest.raises(CorruptFileError, match="not a"):
        read(tmp_path / "archive", packing)


def test_a_changed_byte_is_noticed(tmp_path):
    zip_of(tmp_path / "zip")
    damaged = bytearray((tmp_path / "zip").read_bytes())
    damaged[damaged.index(b"content")] ^= 1
    (tmp_path / "zip").write_bytes(damaged)
    with pytest.raises(CorruptFileError, match="CRC"):
        read(tmp_path / "zip", "zip")
    tar_of(tmp_path / "tar")
    damaged = bytearray((tmp_path / "tar").read_bytes())
    damaged[-8] ^= 1  # gzip's check sum
    (tmp_path / "tar").write_bytes(damaged)
    with pytest.raises(CorruptFileError, match="CRC"):
        read(tmp_path / "tar", "tar")


def test_a_member_that_is_not_there(tmp_path, packing):
    MAKERS[packing](tmp_path / "archive")
    with pytest.raises(CorruptFileError, match="lacks a member.*other"):
        read(tmp_path / "archive", packing, "other")


def test_a_folder_is_not_a_file(tmp_path):
    tar_of(tmp_path / "tar", "folder", kind=tarfile.DIRTYPE)
    with pytest.raises(CorruptFileError, match="not a file"):
        read(tmp_path / "tar", "tar", "folder")
