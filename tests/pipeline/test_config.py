import json

import pytest

from divebook.definitions.definition import compiled
from divebook.definitions.pipelines import EdgeLimit, RoutingRule
from divebook.errors import DefinitionError, NotFoundError
from divebook.pipeline import AgentStage, Pipeline, PipelineConfig
from divebook.pipeline.progress import ready_stages, skipped_stages
from tests.pipeline.worlds import chain, flat


def refused(config):
    with pytest.raises(DefinitionError) as caught:
        PipelineConfig.of(config)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"name": ""}, "pipeline name is required"),
        ({"agents": []}, "name is required"),
        ({"name": "p", "agnts": []}, "did you mean 'agents'"),
        ({"name": "p", "agents": ["a"]}, "must be a mapping"),
        ({"name": "p", "agents": [{"name": ""}]}, "stage name is required"),
        ({"name": "p", "agents": [{"name": "end"}]}, "reserved"),
        ({"name": "p", "agents": [{"name": "a"}, {"name": "a"}]}, "duplicate"),
        ({"name": "p", "default_run_mode": "fast"}, "one of sequential, parallel"),
        ({"name": "p", "max_llm_calls": -1}, "max_llm_calls"),
        ({"name": "p", "max_llm_calls": True}, "max_llm_calls"),
        (flat(a={"has_llm": True}), "model_role"),
        (flat(a={"join_strategy": "some"}), "one of all, any"),
        (flat(a={"tool_access": "most"}), "one of none, read, write, all"),
        (flat(a={"max_retries": -1}), "max_retries"),
        (flat(a={"routing_rules": [{"condition": "v", "value": 1, "target": "b"}]}), "unknown target 'b'"),
        (flat(a={"routing_rules": [{"condition": "v", "value": 1}]}), "target is required"),
        (flat(a={"default_next": "b"}), "default_next leads to the unknown target 'b'"),
        (flat(a={"error_next": "b"}), "error_next leads to the unknown target 'b'"),
        (flat(a={"requires": ["b"]}), "requires unknown stage 'b'"),
        (flat(a={"after": ["b"]}), "after unknown stage 'b'"),
        (flat(a={"requires": ["a"]}), "requires contains the stage itself"),
        (flat(a={"requires": ["b"]}, b={"requires": ["a"]}), "cycle: a, b wait for each other"),
        (flat(a={"requires": ["b"]}, b={"after": ["c"]}, c={"requires": ["a"]}), "cycle"),
        (
            chain("a", edge_limits=[{"from": "a", "to": "x", "max_count": 1}]),
            "an edge limit names the unknown stage 'x'",
        ),
        (chain("a", clarification_resume_stage="x"), "clarification_resume_stage names the unknown stage 'x'"),
        (chain("a", agent_review_resume_stage="x"), "agent_review_resume_stage names the unknown stage 'x'"),
        (chain("a", on_expired="wait"), "one of terminate, ask"),
        ({"name": "p", "prompts": {"x": "X"}, "agents": [{"name": "a", "prompt_key": "y"}]}, "unknown prompt 'y'"),
        ({"name": "p", "agents": [{"name": "a", "prompt_key": "y"}]}, "unknown prompt 'y'"),
    ],
)
def test_what_does_not_fit_together_is_refused(config, part):
    assert part in refused(config)


def test_everything_that_is_wrong_is_told_at_once():
    told = refused(flat(a={"default_next": "x"}, b={"error_next": "y"}))
    assert "'x'" in told
    assert "'y'" in told


def test_a_requirement_of_which_one_is_enough_makes_no_cycle():
    assert PipelineConfig.of(flat(a={}, b={"requires": ["a", "c"], "join_strategy": "any"}, c={"requires": ["b"]}))


def test_stages_of_equal_order_keep_their_places():
    stages = [AgentStage("c", 2), AgentStage("a", 1), AgentStage("d", 2), AgentStage("b", 1)]
    assert PipelineConfig("p", stages).order == ["a", "b", "c", "d"]


def test_an_output_goes_into_the_slot_of_its_stage_unless_told_otherwise():
    assert (AgentStage("a").output_key, AgentStage("a", output_key="x").output_key) == ("a", "x")


@pytest.mark.parametrize(
    ("held", "value", "fires"),
    [
        ("yes", "yes", True),
        (True, True, True),
        ("true", True, False),
        (1, True, False),
        (1, 1.0, True),
        (None, None, True),
        ({"a": [1, 2]}, {"a": [1, 2.0]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ([1], [1, 2], False),
    ],
)
def test_a_rule_compares_values_with_their_types(held, value, fires):
    assert RoutingRule("key", value, "end").fires({"key": held}) is fires


def test_a_rule_about_a_key_that_is_missing_does_not_fire():
    assert RoutingRule("key", None, "end").fires({}) is False


def test_an_edge_without_a_limit_has_limit_0():
    pipeline = Pipeline(chain("a", "b", edge_limits=[{"from": "b", "to": "a", "max_count": 2}]))
    assert (pipeline.edge_limit("b", "a"), pipeline.edge_limit("a", "b")) == (2, 0)
    assert EdgeLimit.from_dict({"source": "b", "target": "a", "max_count": 2}) == pipeline.config.edge_limits[0]


@pytest.mark.parametrize(
    ("access", "allowed", "may"),
    [
        ("none", ["x"], False),
        ("all", ["y"], True),
        ("read", None, True),
        ("read", [], False),
        ("write", ["x"], True),
        ("read", ["y"], False),
    ],
)
def test_which_tools_a_stage_may_use(access, allowed, may):
    assert AgentStage("a", tool_access=access, allowed_tools=allowed).allows("x") is may


def test_a_pipeline_survives_being_written_down():
    config = PipelineConfig.of(
        chain("a", "b", edge_limits=[{"from": "b", "to": "a", "max_count": 2}], prompts={"x": "${envelope.raw_input}"})
    )
    assert PipelineConfig.from_text(config.to_text()) == config


def test_a_recorded_pipeline_is_not_checked_again():
    stage = AgentStage("a", prompt_key="missing")
    recorded = {"name": "p", "agents": [{"name": "a", "output_key": "a", "prompt_key": "missing"}]}
    assert PipelineConfig.from_text(json.dumps(recorded)).agents == (stage,)


def test_functions_of_stages_that_do_not_exist_are_refused():
    with pytest.raises(NotFoundError, match="did you mean 'draft'"):
        Pipeline(chain("draft"), mocks={"drafd": {}})


def test_steps_of_the_workflow_do_not_collide_with_stages():
    workflow = compiled(PipelineConfig.of(chain("route", "batch", "merge")), "parallel")
    assert [step.name for step in workflow.steps] == ["route_", "batch_", "merge_"]


# --- which stages are ready ----------------------------------------------------------------------------------------


def ready(config, completed=(), failed=()):
    return ready_stages(PipelineConfig.of(config), set(completed), set(failed))


def test_an_all_join_waits_for_every_requirement():
    config = flat(a={}, b={}, c={"requires": ["a", "b"]})
    assert (ready(config, "a"), ready(config, "ab")) == (["b"], ["c"])


def test_an_any_join_waits_for_one_requirement():
    config = flat(a={}, b={}, c={"requires": ["a", "b"], "join_strategy": "any"})
    assert (ready(config), ready(config, "a")) == (["a", "b"], ["b", "c"])


def test_an_any_join_without_requirements_is_free():
    assert ready(flat(a={"join_strategy": "any"})) == ["a"]


def test_after_is_content_with_a_stage_that_failed():
    config = flat(a={}, b={"after": ["a"]})
    assert (ready(config), ready(config, "", "a")) == (["a"], ["b"])


def test_requires_is_not_content_with_a_stage_that_failed():
    config = flat(a={}, b={"requires": ["a"]}, c={"after": ["b"]})
    assert ready(config, "", "a") == ["c"]
    assert skipped_stages(PipelineConfig.of(config), set(), {"a"}) == ["b"]


def test_a_stage_that_handles_a_failure_is_released_by_it():
    config = flat(a={"error_next": "b"}, b={"requires": ["a"]})
    assert ready(config, "", "a") == ["b"]


def test_an_any_join_is_skipped_once_all_its_requirements_have_failed():
    config = PipelineConfig.of(flat(a={}, b={}, c={"requires": ["a", "b"], "join_strategy": "any"}))
    assert skipped_stages(config, set(), {"a"}) == []
    assert skipped_stages(config, set(), {"a", "b"}) == ["c"]


def test_what_is_given_as_nothing_is_left_out():
    given = {"name": "a", "requires": None, "default_next": None, "routing_rules": None}
    rule = {"condition": "v", "value": None, "target": "a"}
    config = PipelineConfig.of({"name": "p", "agents": [given, {"name": "b", "routing_rules": [rule]}]})
    assert config.agents[0] == AgentStage("a")
    assert config.agents[1].next_stage({"v": None}) == "a"
