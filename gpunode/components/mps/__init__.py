"""The Multi-Process Service: which daemons shall be (`daemon`), what is (`state`), what a run does to it (`change`)."""
