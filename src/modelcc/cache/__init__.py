"""What lies in the folder of caches: finished models, digests of files, measurements."""
