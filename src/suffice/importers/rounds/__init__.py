"""The result of an importer: rounds of questions, with what is counted and shown of them before they are written."""
