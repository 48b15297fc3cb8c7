"""Files that commands write: whether they can be written is known before minutes of work."""

from __future__ import annotations

from pathlib import Path

from flash_attn_rocm.errors import InputError


def check_writable(option: str, path: Path) -> None:
    """Raise where the file that an option names cannot be written; leaves no new file and makes no directory.

    Raises:
        InputError: its directory does not exist, or the file system does not let this user write it.
    """
    try:
        if not path.parent.is_dir():
            raise InputError(
                f"{option} {path}: cannot be written: there is no directory {path.parent}. Make it, or name another"
            )
        existed = path.exists()
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink()
