"""The process: its threads, forks, devices, caches and dask workers."""
