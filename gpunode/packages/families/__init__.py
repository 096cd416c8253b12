"""The families of distributions by their package managers: what of each is text to be read, or to be written.

A family has one module in each of three rooms: here what it says and is told (pure), in facts/families how it is asked,
in operations/families how it changes a node. Nothing else knows which one a node has.
"""
