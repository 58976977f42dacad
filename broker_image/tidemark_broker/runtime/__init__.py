"""The broker's shells: they own the event loop, perform the cores' effects, talk to peers."""
