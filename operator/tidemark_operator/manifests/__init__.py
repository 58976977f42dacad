"""What users write (schemas, defaults, rules) and what the operator makes of it. Pure."""
