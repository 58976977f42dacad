"""Consumer groups: who is a member, who reads what, and how far they have read. Pure."""
