"""The decision as a service, and a local studio over a folder of recordings, policies and logs."""
