"""How commands reach a node whose login shell, /tmp or sudo is not as most are, and what is said where none does."""
