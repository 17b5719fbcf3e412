"""A proxy in front of OpenAI's and Anthropic's interfaces, which records each reply as a round of its conversation."""
