"""From records to rows: nested fields, dialogues, calls of an interface, chains of thought and columns that are numbered."""
