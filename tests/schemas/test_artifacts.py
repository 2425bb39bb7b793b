"""References and their artifacts: an id is of its content and is no path, and what was damaged does not pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.artifacts import Artifact, ArtifactRef, artifact_of, is_artifact_id, is_private, pack, unpack
from schemas.errors import InvalidValue, LimitExceeded, UnreadableArtifact
from schemas.limits import MAX_ARTIFACT_BYTES

CONTENT = "一份很长的报告。\n第二行。".encode()


def _artifact(content: bytes = CONTENT, *, private: bool = False) -> Artifact:
    return artifact_of(content, producer="report", summary="一份报告", private=private)


def test_the_same_content_has_the_same_id_whoever_made_it() -> None:
    other = artifact_of(CONTENT, producer="else", media_type="text/markdown")
    assert other.ref.id == _artifact().ref.id != _artifact(CONTENT + b".").ref.id


def test_a_private_artifact_has_an_id_of_its_own_kind() -> None:
    shared, private = _artifact().ref, _artifact(private=True).ref
    assert (shared.private, private.private) == (False, True)
    assert is_private(private.id) and shared.id != private.id and shared.sha256 == private.sha256


@pytest.mark.parametrize(
    "text",
    ["", "../../etc/passwd", "art_../..", "art_" + "0" * 31, "art_" + "A" * 32, "art_" + "0" * 32 + "\n", "/art_" + "0" * 32, None, 3],
)
def test_nothing_else_is_an_id(text: object) -> None:
    assert not is_artifact_id(text)


def test_a_reference_whose_id_is_not_of_its_hash_is_refused() -> None:
    ref = _artifact().ref
    for wrong in ({"id": "art_" + "0" * 32}, {"sha256": "0" * 64}, {"id": "../" + ref.id}, {"summary": "x" * 101}, {"size": -1}):
        with pytest.raises(ValidationError):
            ArtifactRef.model_validate({**ref.model_dump(), **wrong})


def test_a_summary_is_cut_at_a_hundred_characters_and_a_content_over_the_limit_is_refused() -> None:
    assert len(artifact_of(b"", producer="a", summary="长" * 300).ref.summary) == 100
    with pytest.raises(LimitExceeded, match="an artifact has"):
        artifact_of(bytes(MAX_ARTIFACT_BYTES + 1), producer="a")


@given(st.binary(max_size=300), st.text(max_size=120), st.booleans())
def test_an_artifact_comes_back_as_it_was_kept(content: bytes, summary: str, private: bool) -> None:
    summary = summary.encode("utf-8", "replace").decode()
    made = artifact_of(content, producer="a", summary=summary, private=private)
    assert unpack(made.ref.id, pack(made)) == made


@given(st.data())
def test_what_was_cut_off_or_changed_is_unreadable(data: st.DataObject) -> None:
    whole = pack(_artifact())
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    place = data.draw(st.integers(whole.index(b"\n") + 1, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    for damaged in (cut, bytes(changed), whole + b"x", b"", b"{}\n"):
        with pytest.raises(UnreadableArtifact, match="unreadable_artifact art_"):
            unpack(_artifact().ref.id, damaged)


def test_one_artifact_under_the_id_of_another_is_unreadable() -> None:
    with pytest.raises(UnreadableArtifact, match="not what was put"):
        unpack(_artifact(b"other").ref.id, pack(_artifact()))


def test_what_is_no_text_is_not_read_as_one() -> None:
    with pytest.raises(InvalidValue, match="is no text"):
        _ = _artifact(b"\xff\xfe").text
    assert _artifact().text == CONTENT.decode()
