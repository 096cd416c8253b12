"""A run of pyinfra as a child: what it tells of itself, how far it is, and how that is shown."""
