"""What a file is by its first bytes, where it is not text, and whether a `.zst` file is whole."""

from pathlib import Path

import zstandard

from collapselab.errors import CorpusError
from collapselab.hub import LFS_POINTER

HEAD_BYTES = 512

_OTHER = "Take it out of the folder, or name the files that hold text."
_PACKED = "Unpack it, and name the files that hold text."
_KINDS: dict[bytes, tuple[str, str]] = {
    b"\x89PNG\r\n\x1a\n": ("a PNG image", _OTHER),
    b"\xff\xd8\xff": ("a JPEG image", _OTHER),
    b"GIF87a": ("a GIF image", _OTHER),
    b"GIF89a": ("a GIF image", _OTHER),
    b"%PDF-": ("a PDF document", "Extract its text into a file, and name that."),
    b"PK\x03\x04": ("a ZIP archive (or an office document, which is one)", _PACKED),
    b"PK\x05\x06": ("an empty ZIP archive", _OTHER),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _PACKED),
    b"Rar!\x1a\x07": ("a RAR archive", _PACKED),
    b"BZh91AY&SY": ("a bzip2 file", _PACKED),
    b"\xfd7zXZ\x00": ("an xz file", _PACKED),
    b"\x1f\x8b\x08": ("a gzip file", "Let its name end in .gz."),
    b"\x28\xb5\x2f\xfd": ("a Zstandard file", "Let its name end in .zst."),
    b"PAR1\x15": ("a Parquet file", "Let its name end in .parquet."),
    b"GGUF\x02\x00": ("a GGUF model", _OTHER),
    b"GGUF\x03\x00": ("a GGUF model", _OTHER),
    b"SQLite format 3\x00": ("an SQLite data base", "Export its text as JSON lines."),
    b"\x93NUMPY": ("a NumPy array", _OTHER),
    b"\x7fELF": ("a program", _OTHER),
    b"ARROW1\x00": ("an Arrow file", "Save it as Parquet."),
    b"\xff\xfe": ("a text in UTF-16", "Make UTF-8 of it: iconv -f UTF-16 -t UTF-8 FILE > NEW."),
    b"\xfe\xff": ("a text in UTF-16", "Make UTF-8 of it: iconv -f UTF-16 -t UTF-8 FILE > NEW."),
}
_SKIPPABLE = 0x184D2A50
"""The first of sixteen marks of zstd frames that hold no data."""


def file_kind(head: bytes, *, pointers_only: bool = False) -> str | None:
    """What a file with these first bytes is, and what to do; None for what may be text."""
    if head.startswith(LFS_POINTER):
        return "a git-LFS pointer, in place of a file that was not downloaded. Fetch it: git lfs pull."
    if pointers_only:
        return None
    for beginning, (kind, advice) in _KINDS.items():
        if head.startswith(beginning):
            return f"{kind}, where text in UTF-8 is needed. {advice}"
    if 0 < int.from_bytes(head[:8], "little") < 1 << 32 and head[8:10] == b'{"':
        return f"a safetensors file of weights, where text in UTF-8 is needed. {_OTHER}"
    return f"a tar archive, where text in UTF-8 is needed. {_PACKED}" if head[257:262] == b"ustar" else None


def check_zstd(path: Path) -> None:
    """Refuse a `.zst` file whose last frame is cut short, or with something else after its frames.

    The library reads such a file up to its end without an error. The lengths of frames and blocks are in the
    file, so that nothing needs to be decompressed.
    """
    size, position, last = path.stat().st_size, 0, True
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            head = file.read(18)  # the longest header of a frame
            if int.from_bytes(head[:4], "little") & ~0xF == _SKIPPABLE:
                position += 8 + int.from_bytes(head[4:8], "little")
                continue
            try:
                has_checksum = zstandard.get_frame_parameters(head).has_checksum
                position += zstandard.frame_header_size(head)
            except zstandard.ZstdError as error:
                place = f"no zstd frame begins at byte {position:,} of {size:,}"
                raise CorpusError(f"{path}: the compressed file is damaged or cut short ({place}).") from error
            last = False
            while not last and position < size:
                file.seek(position)
                header = int.from_bytes(file.read(3), "little")
                last, repeated, length = bool(header & 1), header >> 1 & 3 == 1, header >> 3
                position += 3 + (1 if repeated else length)
            position += 4 if has_checksum else 0
            if not last:
                break
    if position != size or not last:
        raise CorpusError(f"{path}: the compressed file is damaged or cut short (its last frame does not end).")
