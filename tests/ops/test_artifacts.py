"""The folder of artifacts: whole files or none, for their owner alone, and nothing that names a path."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ops.artifacts.folder import FolderShelf
from ops.artifacts.keeping import KeptArtifacts
from schemas.artifacts import Artifact, artifact_of, pack
from schemas.errors import Unavailable, UnreadableArtifact


def _made(content: bytes = b"a long report", *, private: bool = False) -> Artifact:
    return artifact_of(content, producer="report", private=private)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_only_the_owner_may_read_what_is_in_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "artifacts"
    await KeptArtifacts(FolderShelf(root)).put(_made(private=True))
    (file,) = _files(root)
    assert file.stat().st_mode & 0o777 == 0o600
    for folder in (root, *file.parents[: len(file.relative_to(root).parts) - 1]):
        assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_file_is_a_line_of_reference_and_the_content_as_it_is(tmp_path: Path) -> None:
    made = _made("第一行\n第二行".encode())
    await KeptArtifacts(FolderShelf(tmp_path)).put(made)
    (file,) = _files(tmp_path)
    assert file.name == made.ref.id
    assert file.read_bytes().partition(b"\n")[2] == made.content


async def test_a_truncated_file_and_one_of_another_content_are_unreadable(tmp_path: Path) -> None:
    store, made = KeptArtifacts(FolderShelf(tmp_path)), _made()
    await store.put(made)
    (file,) = _files(tmp_path)
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(UnreadableArtifact, match="it has 12 bytes, and had 13"):
        await store.read(made.ref.id)
    file.write_bytes(pack(made).replace(b"long", b"LONG"))
    with pytest.raises(UnreadableArtifact, match="not what was put there"):
        await store.read(made.ref.id)


async def test_a_crash_in_the_middle_of_a_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, made = KeptArtifacts(FolderShelf(tmp_path)), _made()
    await store.put(made)

    def broken(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(Unavailable, match=r"the folder of artifacts, .*: No space left on device"):
        await store.put(_made(b"another"))
    monkeypatch.undo()
    assert await store.read(made.ref.id) == made
    assert len(_files(tmp_path)) == 1  # nothing half written is left either


async def test_what_a_killed_process_had_begun_is_swept_away_after_a_day(tmp_path: Path) -> None:
    store = KeptArtifacts(FolderShelf(tmp_path))
    await store.put(_made())
    old, young = tmp_path / "begun" / "art_x.1", tmp_path / "begun" / "art_x.2"
    for each in (old, young):
        each.write_bytes(b"half")
    os.utime(old, (time.time() - 90_000, time.time() - 90_000))
    assert await store.sweep() == 0
    assert {path.name for path in _files(tmp_path / "begun")} == {young.name}


async def test_a_folder_that_cannot_be_made_is_unavailable_and_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(Unavailable, match="taken"):
        await KeptArtifacts(FolderShelf(tmp_path / "taken" / "below")).put(_made())
