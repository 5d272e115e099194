"""What natgrad asks of the process it runs in: compiler, threads, caches, devices."""
