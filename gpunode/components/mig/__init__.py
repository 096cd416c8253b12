"""Multi-Instance GPU: the declaration, where its instances go, and the smallest change that brings them there."""
