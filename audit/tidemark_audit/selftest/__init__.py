"""`tidemark audit --self-test`: made-up clusters whose truth is known, audited by both engines.

Nothing here uses the kernel, the facts or the rules: what should be found is computed from the
events themselves, not from samples.
"""
