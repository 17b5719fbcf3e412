"""A proxy before OpenAI's and Anthropic's interfaces that records each reply as a round of its conversation."""
