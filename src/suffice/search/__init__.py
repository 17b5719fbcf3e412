"""Search over families of rules, and how much of the best rule's lead is luck."""
