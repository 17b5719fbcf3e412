"""A service that decides over HTTP when loops stop, and a local studio for a folder of recordings, policies and logs."""
