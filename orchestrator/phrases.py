"""What the runtime itself says to a user, per language: failure codes in plain words, and the notice of an answer with gaps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.requests import Correction, Gap, RequestStatus
from schemas.results import FailureCode


@dataclass(frozen=True, slots=True)
class Phrases:
    """One language's sentences. `{...}` are filled by `notice`."""

    finished: str
    nothing_finished: str
    gap: str
    stopped: str
    follow_up: str
    cancelled: str
    failed: str
    corrected: str
    """Before what this answer says otherwise than the last one."""
    instead: str
    """Takes `title`, `key`, `before`, `after` and `reason`."""
    withdrawn: str
    """Takes `title`, `key`, `before` and `reason`."""
    separator: str
    join: str
    """Between two sentences: a space, or nothing."""
    codes: Mapping[str, str]
    unknown_code: str


_CODES_EN = {
    "MAX_STEPS": "it did not come to an answer within the steps it may take",
    "NO_PROGRESS": "it went in circles without learning anything new",
    "BUDGET_EXHAUSTED": "it used up what it may spend before it had an answer",
    "TIMEOUT": "it took longer than it may",
    "AGENT_ERROR": "an error occurred while working on it",
    "CONTRADICTORY_TASK": "what was asked contradicts itself",
    "WRONG_SIGNATURE": "its result could not be attributed",
    "BAD_RESULT": "its result could not be used",
    "MISSING_OUTPUT": "its result lacked what it has to bring",
    "MISSING_FACT": "something that it depends on was not found",
    "BRIEF_TOO_LARGE": "what it has to read at once is too much",
    "UNREADABLE_ARTIFACT": "material that it was given cannot be read any more",
    "BLOCKED": "something that it needs may not be used as it is",
    "NEEDS_PERSON": "a person has to decide first",
    "REFUSED": "a person decided against it",
    "FIELD_REFUSED": "what it wanted to record does not fit what is already recorded",
    "STALE": "what it rested on was withdrawn",
    "FACTS_DIFFER": "two sources gave different values",
    "ATTEMPTS_EXHAUSTED": "every attempt broke off before it was done",
    "WORKER_DIED": "every attempt broke off before it was done",
    "UNKNOWN_AGENT": "nobody can work on it at the moment",
    "DEADLINE": "the time for this request was over",
    "CANCELLED": "the request was cancelled",
    "REFUSED_PLAN": "the further work that was planned could not be carried out",
}

_CODES_ZH = {
    "MAX_STEPS": "在允许的步数内没有得出结论",
    "NO_PROGRESS": "反复尝试但没有新的进展",
    "BUDGET_EXHAUSTED": "用完了允许的额度仍没有得出结论",
    "TIMEOUT": "处理超过了允许的时间",
    "AGENT_ERROR": "处理过程中出现了错误",
    "CONTRADICTORY_TASK": "问题的要求前后矛盾",
    "WRONG_SIGNATURE": "结果的来源无法确认",
    "BAD_RESULT": "得到的结果无法使用",
    "MISSING_OUTPUT": "结果里缺少必须给出的内容",
    "MISSING_FACT": "没有查到它所依赖的信息",
    "BRIEF_TOO_LARGE": "需要一次读入的内容过多",
    "UNREADABLE_ARTIFACT": "交给它的资料已无法读取",
    "BLOCKED": "它所需要的内容暂时不能使用",
    "NEEDS_PERSON": "需要先由人工决定",
    "REFUSED": "人工决定不做",
    "FIELD_REFUSED": "它要记录的内容与已有记录不符",
    "STALE": "它所依据的内容已被撤回",
    "FACTS_DIFFER": "两处来源给出的内容不一致",
    "ATTEMPTS_EXHAUSTED": "多次尝试都中途断开",
    "WORKER_DIED": "多次尝试都中途断开",
    "UNKNOWN_AGENT": "目前没有人能处理这一项",
    "DEADLINE": "这次请求的处理时间已到",
    "CANCELLED": "请求已取消",
    "REFUSED_PLAN": "后续安排无法执行",
}

_PHRASES: dict[str, Phrases] = {
    "en": Phrases(
        finished="The above is what has been finished.",
        nothing_finished="Nothing could be finished.",
        gap="“{title}” was not completed: {why} ({code}).",
        stopped="Because of it, these parts were stopped: {titles}.",
        follow_up="A person has to follow up on what is open; please do not take this for the full answer.",
        cancelled="The request was cancelled before everything was done.",
        failed="The request could not be carried out: {why} ({code}).",
        corrected="This answer corrects an earlier one.",
        instead="“{title}”: {key} was given as {before}; it is {after} ({reason}).",
        withdrawn="“{title}”: {key} was given as {before}; that is withdrawn ({reason}).",
        separator=", ",
        join=" ",
        codes=_CODES_EN,
        unknown_code="it could not be done",
    ),
    "zh": Phrases(
        finished="以上是已经完成的部分。",
        nothing_finished="这次没有任何一部分得以完成。",
        gap="“{title}”这一部分没有完成：{why}（{code}）。",
        stopped="受它影响，以下部分也已停止：{titles}。",
        follow_up="剩余问题需要人工跟进，请不要把目前的内容当作完整答复。",
        cancelled="请求在全部完成之前已被取消。",
        failed="这次请求无法处理：{why}（{code}）。",
        corrected="这份答复更正了之前的答复。",
        instead="“{title}”：{key} 之前给出的是 {before}，现在是 {after}（{reason}）。",
        withdrawn="“{title}”：{key} 之前给出的是 {before}，现已撤回（{reason}）。",
        separator="、",
        join="",
        codes=_CODES_ZH,
        unknown_code="没能处理完",
    ),
}


def notice(
    status: RequestStatus, gaps: Sequence[Gap], titles: Mapping[str, str], *, any_section: bool, language: Literal["en", "zh"]
) -> str:
    """Return the one paragraph below an answer that is not whole; `titles` are those of all steps by id.

    Five parts: that the above is what is finished; which part is not; why, in plain words with the code; what stopped
    because of it; that a person has to follow up and this is not the full answer.
    """
    phrases = _PHRASES[language]
    sentences = [phrases.finished if any_section else phrases.nothing_finished]
    if status is RequestStatus.CANCELLED:
        sentences.append(phrases.cancelled)
    for gap in gaps:
        why = phrases.codes.get(gap.reason, phrases.unknown_code)
        if gap.step:
            sentences.append(phrases.gap.format(title=titles[gap.step], why=why, code=_shown(gap.reason)))
        else:
            sentences.append(phrases.failed.format(why=why, code=_shown(gap.reason)))
        if gap.stopped:
            sentences.append(phrases.stopped.format(titles=phrases.separator.join(f"“{titles[step]}”" for step in gap.stopped)))
    sentences.append(phrases.follow_up)
    return phrases.join.join(sentences)


def correction(corrections: Sequence[Correction], titles: Mapping[str, str], *, language: Literal["en", "zh"]) -> str:
    """Return the paragraph above an answer that takes the place of one with withdrawn values: what was said, and what holds."""
    phrases = _PHRASES[language]
    sentences = [phrases.corrected]
    for each in corrections:
        words = phrases.instead if each.after else phrases.withdrawn
        shown = {name: " ".join(getattr(each, name).split())[:200] for name in ("key", "before", "after", "reason")}
        sentences.append(words.format(title=titles.get(each.step, ""), **shown))
    return phrases.join.join(sentences)


def _shown(code: str) -> str:
    """A failure's code as it may stand in a sentence: an agent's own could be any text, and that is not for the user."""
    return code if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", code) else FailureCode.AGENT_ERROR
