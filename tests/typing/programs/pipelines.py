"""A pipeline of stages over one envelope."""

from divebook.pipeline import AgentStage, Envelope, Pipeline, PipelineConfig, create_envelope

if __name__ == "__main__":
    envelope: Envelope = create_envelope("question", user_id="u", session_id="s")
    assert envelope.raw_input == "question"
    stage = AgentStage("find", stage_order=1)
    config = PipelineConfig("answering", [stage])
    assert config.name == "answering"
    pipeline = Pipeline(config)
    assert pipeline.config.name == "answering"
