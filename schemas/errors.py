"""The one error tree. Library errors are translated into it at the wall (`raise ... from`).

BrieflineError                   .retryable says whether the same call may succeed later
├── Refused                      bad input, refused at the edge; .path names the bad value
│   ├── InvalidValue             a value that cannot be read or kept (NaN, lone surrogate, wrong type)
│   ├── LimitExceeded            larger than a stated limit
│   ├── InvalidPlan              circle, unknown agent, dependency or need
│   ├── InvalidTeam              a team whose agents, tools, rules or constraints do not fit together
│   ├── InvalidSettings          a setting that is missing or wrong
│   ├── MissingConstraint        a required constraint that nobody gave
│   ├── NotPermitted             a writer that does not own the field
│   ├── IllegalTransition        a state change that the state machine does not have
│   ├── NotFound                 no such request, step, team or agent
│   ├── SessionBusy              the last request of the session is not over
│   └── KeyReused                the idempotency key belongs to a request with other content
├── Unreadable                   a message or a stored value that nobody here can read
│   ├── UnsupportedVersion       of another major schema version, or of an unknown kind
│   └── UnreadableArtifact       an artifact that is gone, past its time, cut off or changed
├── ProtocolViolation            a message that contradicts the board; parked, never an agent's failure
├── Unavailable                  a server that does not answer (retryable)
│   ├── OutcomeUnknown           sent, but not known to have arrived; sending again is safe
│   └── BoardOutOfMemory         Redis refuses writes; nothing was changed
├── Undeliverable                no queue takes the message
├── UnsafeServer                 a server whose settings would break a promise
└── AgentFailed                  an agent could not do its task; carries a failure code
"""

from __future__ import annotations


class BrieflineError(Exception):
    """Root of every error that Briefline raises on purpose; `retryable` says whether trying again can help."""

    retryable = False


class Refused(BrieflineError):
    """Bad input, refused before anything was stored or sent.

    `path` is where the bad value stands, in dotted form (`steps.2.needs.0`), or empty when there is no single place.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class InvalidValue(Refused):
    """A value that cannot be read or kept: not JSON, NaN, a lone surrogate, too deep, of another type."""


class LimitExceeded(Refused):
    """A value larger than a stated limit."""


class InvalidPlan(Refused):
    """A plan with a circle, or with an agent, dependency or need that does not exist."""


class InvalidTeam(Refused):
    """A team whose agents, tools, fact rules or constraints do not fit together."""


class InvalidSettings(Refused):
    """A setting that is missing or has a wrong value."""


class MissingConstraint(Refused):
    """A required constraint that neither the caller nor the user's words gave."""


class NotPermitted(Refused):
    """A write to a field by somebody who does not own it."""


class IllegalTransition(Refused):
    """A change of state that the state machine does not have."""


class NotFound(Refused):
    """No such request, step, team, agent or dead letter."""


class SessionBusy(Refused):
    """The last request of the session is not over, so that the next one has to wait."""


class KeyReused(Refused):
    """The idempotency key already stands for a request with other content."""


class Unreadable(BrieflineError):
    """Bytes that are no message or value of ours; the text says why."""


class UnsupportedVersion(Unreadable):
    """A message or value of another major schema version, or of a kind unknown here."""


class UnreadableArtifact(Unreadable):
    """An artifact that its store does not have any more, or whose content is not what was put there."""

    def __init__(self, artifact_id: str, why: str) -> None:
        super().__init__(f"unreadable_artifact {artifact_id}: {why}")
        self.artifact_id = artifact_id
        self.why = why


class ProtocolViolation(BrieflineError):
    """A message that contradicts the board in the same epoch and version, or names a wrong sender or recipient."""


class Unavailable(BrieflineError):
    """A server that does not answer within the deadline, or is not ready."""

    retryable = True


class OutcomeUnknown(Unavailable):
    """A call that was sent and not answered: it may have taken effect. Sending it again is safe."""


class BoardOutOfMemory(Unavailable):
    """Redis is at `maxmemory` and refuses the write. Nothing was changed; reads still work."""


class Undeliverable(BrieflineError):
    """No queue takes the message (nobody has declared one for this agent)."""


class UnsafeServer(BrieflineError):
    """A server whose settings would break a promise, such as an eviction policy that drops state."""


class AgentFailed(BrieflineError):
    """An agent or tool says that the task failed, with a code of its own and whether trying again can help.

    Raise it inside an agent to choose the failure code and the retry; any other exception becomes `AGENT_ERROR`.
    """

    def __init__(self, code: str, description: str, *, retryable: bool = False) -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description
        self.retryable = retryable
