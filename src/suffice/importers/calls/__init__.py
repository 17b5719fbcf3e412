"""Model calls as logged by tools: JSON objects, prompts and replies, and the spans made from them."""
