"""Artifacts in a folder, on this machine or on a file system that several share.

A file is written beside its place, flushed to the disk, and then renamed: a reader sees it whole or not at all. Only the owner
may read (0700 and 0600). File I/O runs in threads; nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from schemas.artifacts import is_private
from schemas.errors import Unavailable

_BEGUN = "begun"
"""Folder of files that are being written. What a crash left there is swept away after a day."""
_BEGUN_SECONDS = 24 * 60 * 60

T = TypeVar("T")


class FolderShelf:
    """A shelf below one folder, which is made when the first artifact is saved."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def save(self, name: str, data: bytes) -> None:
        """See `ops.artifacts.keeping.Shelf`, here and below."""
        await self._in_thread(lambda: self._save(name, data))

    async def load(self, name: str) -> tuple[bytes, float] | None:
        """Return bytes and time."""
        return await self._in_thread(lambda: self._load(name))

    async def remove(self, name: str) -> None:
        """Take away."""
        await self._in_thread(lambda: self._place(name).unlink(missing_ok=True))

    async def saved_before(self, moment: float, *, private: bool, limit: int) -> list[str]:
        """Return old names."""
        return await self._in_thread(lambda: self._saved_before(moment, private=private, limit=limit))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise Unavailable(f"the folder of artifacts, {self._root}: {error.strerror or error}") from error

    def _kind(self, *, private: bool) -> Path:
        return self._root / ("private" if private else "shared")

    def _place(self, name: str) -> Path:
        # Two digits between: a folder with a million entries is slow to list.
        return self._kind(private=is_private(name)) / name[-2:] / name

    def _save(self, name: str, data: bytes) -> None:
        place, begun = self._place(name), self._root / _BEGUN
        for folder in (self._root, begun, place.parent.parent, place.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = begun / f"{name}.{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(place)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        self._flush_names(place.parent)

    def _flush_names(self, folder: Path) -> None:
        """A rename is on the disk once its folder is."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _load(self, name: str) -> tuple[bytes, float] | None:
        try:
            with self._place(name).open("rb") as file:
                return file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None

    def _saved_before(self, moment: float, *, private: bool, limit: int) -> list[str]:
        for left in _files(self._root / _BEGUN):
            if left.stat().st_mtime < time.time() - _BEGUN_SECONDS:
                Path(left).unlink(missing_ok=True)
        found: list[str] = []
        for folder in _entries(self._kind(private=private)):
            for file in _files(folder):
                if len(found) == limit:
                    return found
                with suppress(FileNotFoundError):  # another process sweeps too
                    if file.stat().st_mtime < moment:
                        found.append(file.name)
        return found


def _entries(folder: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


def _files(folder: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in _entries(folder) if entry.is_file(follow_symlinks=False))
