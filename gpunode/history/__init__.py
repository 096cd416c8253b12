"""What was found of each host, over time: since when it is so, and what changed when.

A history is a database: a file of SQLite's, or PostgreSQL. What commands found goes into it by their JSON documents;
a finding that stays as it is takes no more room, however often it is told.
"""
