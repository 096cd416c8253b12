"""Engines that carry out whole commands on parts of an inventory: by processes here, or by Dask's workers."""
