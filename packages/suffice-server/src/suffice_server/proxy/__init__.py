"""A proxy that forwards requests to OpenAI's and Anthropic's interfaces, and records each reply as a round."""
