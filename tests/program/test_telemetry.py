"""OpenTelemetry spans: one for the question, one inside for each step, none when nobody listens."""

import pytest
from staged import Decider, staged

otel = pytest.importorskip("opentelemetry.sdk.trace")


class Failing(Decider):
    """A decider that fails at the whole of the evidence."""

    def __call__(self, state, questions):
        if "sufficient" in questions:
            raise RuntimeError("no such luck")
        return super().__call__(state, questions)


def test_a_question_is_a_span_with_its_steps_inside(spans):
    answer = staged()("What is it?")
    *steps, whole = spans()
    assert whole.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert whole.attributes["ragc.trace_id"] == answer.trace.id
    assert whole.attributes["gen_ai.usage.input_tokens"] == 10
    assert {step.parent.span_id for step in steps} == {whole.context.span_id}
    assert [step.attributes["ragc.step"] for step in steps] == [step.name for step in answer.trace.steps]
    assert all(whole.start_time <= step.start_time <= step.end_time for step in steps)


def test_a_text_a_decision_and_a_search_are_told_apart_by_the_conventions_names(spans):
    staged()("What is it?")
    found = {span.attributes.get("ragc.step"): span for span in spans()}
    chat = found["generator.answer"]
    assert chat.name == "chat writer"
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.request.model"] == "writer"
    assert chat.attributes["gen_ai.usage.output_tokens"] == 5
    assert found["search"].attributes["gen_ai.operation.name"] == "retrieval"
    assert found["judge.sufficiency"].attributes["ragc.score.sufficient"] == 0.9


def test_no_text_of_a_passage_or_prompt_is_in_a_span(spans):
    staged()("What is it?")
    told = " ".join(str(value) for span in spans() for value in span.attributes.values())
    assert "text 0" not in told


def test_a_step_that_failed_is_a_span_with_the_status_of_an_error(spans):
    from opentelemetry.trace import StatusCode

    answer = staged(Failing())("What is it?")
    (failed,) = [span for span in spans() if span.status.status_code is StatusCode.ERROR]
    assert failed.attributes["ragc.step"] == "judge.sufficiency"
    assert failed.attributes["error.type"] == "RuntimeError"
    assert failed.status.description == "failed: RuntimeError: no such luck"
    assert [step.name for step in answer.trace.steps if step.error] == ["judge.sufficiency"]


def test_a_span_hangs_under_the_callers_own(spans):
    from opentelemetry import trace

    with trace.get_tracer("caller").start_as_current_span("request") as outer:
        staged()("What is it?")
    (whole,) = [span for span in spans() if span.name == "invoke_workflow ragc"]
    assert whole.parent.span_id == outer.get_span_context().span_id
