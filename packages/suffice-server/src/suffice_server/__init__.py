"""The decision as a service, and a local studio for a folder of recordings, policies and logs."""
