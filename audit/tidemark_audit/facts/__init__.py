"""Summaries to facts: what each partition was in and when. Pure; no rule, no objective."""
