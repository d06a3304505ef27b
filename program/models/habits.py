"""What a model turns out to need of a request, so that it is not asked in vain again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from program.models.transport import Call, CallFailed

LONGER = 8  # times the tokens of a reply for a model that thinks before it writes
_NOT_UNDERSTOOD = (400, 422)
FORM = "response_format"
LONGEST = "max_tokens"


@dataclass(slots=True)
class Habits:
    """Learned from replies: that a model needs room to think, that its server takes no schema for a reply."""

    thinks: bool = False
    takes_no_form: bool = False

    def put(self, call: Call) -> Call:
        """The request as this model is to be sent it."""
        if self.thinks and LONGEST in call.settings:
            call = _longer(call)
        return _formless(call) if self.takes_no_form else call

    def otherwise(self, call: Call, sent: Call, failure: CallFailed) -> Call | None:
        """Another request in place of one that was sent and failed; None when a change would not mend it."""
        if failure.cut and sent.settings.get(LONGEST) is not None and sent.settings[LONGEST] == call.settings[LONGEST]:
            return _longer(sent)
        if failure.status in _NOT_UNDERSTOOD and FORM in sent.settings:
            return _formless(sent)
        return None

    def learn(self, call: Call, sent: Call) -> None:
        """Keeps by what changes a request was answered."""
        self.thinks = self.thinks or sent.settings.get(LONGEST) != call.settings.get(LONGEST)
        self.takes_no_form = self.takes_no_form or (FORM in call.settings and FORM not in sent.settings)


def _longer(call: Call) -> Call:
    return replace(call, settings={**call.settings, LONGEST: LONGER * int(call.settings[LONGEST])})


def _formless(call: Call) -> Call:
    return replace(call, settings={name: value for name, value in call.settings.items() if name != FORM})
