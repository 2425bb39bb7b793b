"""The artifact store on every shelf: in memory, in a folder, in a bucket of an S3 server. What holds here, holds on each."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.artifacts.folder import FolderShelf
from ops.artifacts.keeping import DAY_SECONDS, KeptArtifacts, Shelf
from ops.artifacts.memory import MemoryShelf
from ops.artifacts.s3 import S3Shelf
from schemas.artifacts import Artifact, ArtifactStore, artifact_of, pack
from schemas.errors import NotFound, Unavailable, UnreadableArtifact
from tests.support.buckets import OwnBuckets

BACKENDS = ["memory", "folder", pytest.param("s3", marks=pytest.mark.own_server)]
NO_IDS = ["", ".", "../secret", "/etc/passwd", "art_../../x", "art_" + "0" * 33, "art_" + "G" * 32, "prv_\x00", "art_" + "0" * 31 + "/"]


@dataclass
class Bench:
    """A store under test, the shelf below it, and a clock to set forward."""

    shelf: Shelf
    ahead_seconds: float = 0.0

    @property
    def store(self) -> ArtifactStore:
        """A store with the usual lengths of time."""
        return KeptArtifacts(self.shelf, now=lambda: time.time() + self.ahead_seconds)

    async def damage(self, name: str, data: bytes | None) -> None:
        """Put other bytes in the place of an artifact, or take it away."""
        await (self.shelf.remove(name) if data is None else self.shelf.save(name, data))


@pytest.fixture(scope="session")
def buckets() -> Iterator[OwnBuckets]:
    """One S3 server for all tests of this process."""
    with pytest.MonkeyPatch.context() as patch, OwnBuckets() as server:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield server


@pytest.fixture(params=BACKENDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """A store that holds nothing."""
    if request.param == "memory":
        return Bench(MemoryShelf())
    if request.param == "folder":
        return Bench(FolderShelf(tmp_path / "artifacts"))
    server: OwnBuckets = request.getfixturevalue("buckets")
    bucket = f"b-{secrets.token_hex(4)}"
    assert server.ask("PUT", f"/{bucket}")[0] == 200
    return Bench(S3Shelf(f"s3://{bucket}/team?endpoint={server.endpoint}"))


def _report(text: str = "第一章：保修政策。" * 2000, **given: bool) -> Artifact:
    return artifact_of(text.encode(), producer="report", summary="保修政策", **given)  # type: ignore[arg-type]  # private alone


async def test_what_was_put_is_read_back_with_its_reference(bench: Bench) -> None:
    for made in (_report(), _report(private=True), artifact_of(b"", producer="a"), artifact_of(bytes(range(256)) * 999, producer="a")):
        await bench.store.put(made)
        assert await bench.store.read(made.ref.id) == made


async def test_the_same_content_put_twice_is_one_artifact(bench: Bench) -> None:
    await bench.store.put(_report())
    again = artifact_of(_report().content, producer="other", depends_on=[_report("x").ref.id])
    await bench.store.put(again)
    assert await bench.store.read(_report().ref.id) == again


async def test_a_private_artifact_and_a_shared_one_of_the_same_content_are_two(bench: Bench) -> None:
    shared, private = _report(), _report(private=True)
    await bench.store.put(shared)
    await bench.store.put(private)
    await bench.store.delete(private.ref.id)
    assert await bench.store.read(shared.ref.id) == shared
    with pytest.raises(UnreadableArtifact):
        await bench.store.read(private.ref.id)


async def test_an_artifact_that_was_never_put_is_unreadable_and_the_error_says_so(bench: Bench) -> None:
    with pytest.raises(UnreadableArtifact, match=r"unreadable_artifact art_\w+: the store does not have it") as caught:
        await bench.store.read(_report().ref.id)
    assert caught.value.artifact_id == _report().ref.id


@pytest.mark.parametrize("kind", ["deleted", "cut off", "changed", "emptied", "another"])
async def test_a_damaged_artifact_is_unreadable_and_putting_it_again_heals_it(bench: Bench, kind: str) -> None:
    made = _report()
    whole = pack(made)
    await bench.store.put(made)
    damaged = {"deleted": None, "cut off": whole[:-1], "changed": whole[:-1] + b"x", "emptied": b"", "another": pack(_report("other"))}
    await bench.damage(made.ref.id, damaged[kind])
    with pytest.raises(UnreadableArtifact, match="unreadable_artifact art_"):
        await bench.store.read(made.ref.id)
    await bench.store.put(made)
    assert await bench.store.read(made.ref.id) == made


@pytest.mark.parametrize("wrong", NO_IDS)
async def test_what_is_no_id_leads_nowhere(bench: Bench, wrong: str) -> None:
    for call in (bench.store.read, bench.store.delete):
        with pytest.raises(NotFound, match="no artifact's id"):
            await call(wrong)


async def test_deleting_takes_away_and_twice_is_no_error(bench: Bench) -> None:
    made = _report()
    await bench.store.put(made)
    await bench.store.delete(made.ref.id)
    await bench.store.delete(made.ref.id)
    with pytest.raises(UnreadableArtifact):
        await bench.store.read(made.ref.id)


async def test_a_private_artifact_is_past_its_time_after_three_days_and_a_shared_one_after_thirty(bench: Bench) -> None:
    shared, private = _report(), _report(private=True)
    for made in (shared, private):
        await bench.store.put(made)
    assert await bench.store.sweep() == 0
    bench.ahead_seconds = 3 * DAY_SECONDS + 60
    with pytest.raises(UnreadableArtifact, match=r"past its time \(private ones are kept for 3 days\)"):
        await bench.store.read(private.ref.id)
    assert await bench.store.read(shared.ref.id) == shared
    assert await bench.store.sweep() == 1
    bench.ahead_seconds = 0
    with pytest.raises(UnreadableArtifact, match="does not have it"):
        await bench.store.read(private.ref.id)
    bench.ahead_seconds = 30 * DAY_SECONDS + 60
    assert await bench.store.sweep() == 1
    bench.ahead_seconds = 0
    with pytest.raises(UnreadableArtifact, match="does not have it"):
        await bench.store.read(shared.ref.id)


async def test_a_sweep_takes_no_more_than_it_is_told_to(bench: Bench) -> None:
    for number in range(5):
        await bench.store.put(artifact_of(b"%d" % number, producer="a", private=True))
    bench.ahead_seconds = 4 * DAY_SECONDS
    assert [await bench.store.sweep(limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_store_that_holds_nothing_yet_sweeps_and_reads_without_trouble(bench: Bench) -> None:
    assert await bench.store.sweep() == 0


@pytest.mark.own_server
async def test_a_bucket_that_is_not_there_and_a_server_that_is_away_are_unavailable(buckets: OwnBuckets) -> None:
    nowhere = S3Shelf(f"s3://no-such-bucket?endpoint={buckets.endpoint}")
    for call in (KeptArtifacts(nowhere).put(_report()), KeptArtifacts(nowhere).read(_report().ref.id), KeptArtifacts(nowhere).sweep()):
        with pytest.raises(Unavailable, match="no-such-bucket"):
            await call
    away = S3Shelf("s3://bucket?endpoint=http://127.0.0.1:9", retry_seconds=1)
    with pytest.raises(Unavailable, match="the bucket of artifacts, bucket"):
        await KeptArtifacts(away).put(_report())
