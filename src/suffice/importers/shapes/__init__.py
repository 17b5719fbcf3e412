"""Convert records to rows: nested fields, dialogues, API calls, chains of thought and numbered columns."""
