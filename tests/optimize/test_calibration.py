"""What the report says of each decision: as it is with what was chosen, and for nothing."""

from optimize.compiler.calibration import judged
from optimize.compiler.journal import create
from optimize.compiler.routing import ROUTE
from optimize.compiler.spending import Caps
from program.loop.policy import DEMONSTRATIONS, apply_setting, read_setting
from tests.optimize.conftest import prepared


def vague(ready, setting):
    """How probably each question was said to be vague."""
    return next((one.chances for one in judged(ready, setting) if one.parameter == f"{ROUTE}:vague"), [])


def test_the_router_is_judged_with_the_demonstrations_that_were_chosen(own_shop):
    ready = prepared(own_shop)
    drawn = []
    for place in (0, 1):
        setting = {**read_setting(ready.base), **ready.begun, ROUTE + DEMONSTRATIONS: place}
        drawn.append(vague(ready, setting))
        decided = []
        for arm in ready.arms:
            apply_setting(arm.replay.program, setting)
            for asked in arm.replay.asked([question.question for question in arm.questions]):
                decided += [reply["vague"].probability for ask, reply in asked if ask.predictor == ROUTE]
        assert decided and set(decided) <= set(drawn[-1])
    assert len(drawn[0]) == len(drawn[1]) == len(ready.parts["train"])
    assert not set(drawn[0]) & set(drawn[1])


def test_what_would_have_to_be_paid_for_is_left_out_and_the_rest_is_told(paid_shop, model):
    ready = prepared(paid_shop)
    ready.begin(create(ready.project, ready.identity(), {"id": "judged", "trials": 1}))
    ready.spending.add(5, 0.0)  # free, so the study does not know of them yet
    ready.spending.caps = caps = Caps(usd=1.0)
    paid, setting = len(model.calls), read_setting(ready.base)
    assert len(vague(ready, setting)) == len(ready.parts["train"])
    router = ready.arms[0].replay.program.predictor(ROUTE)
    router.candidates.signatures = [router.signature.with_instructions("What nobody was told yet.")]
    assert len(vague(ready, setting)) == len(ready.parts["train"]) - len(ready.arms[0].questions)
    assert len(model.calls) == paid
    assert ready.spending.caps == caps
