"""The cache folder: compiled artifacts, digests of files, measurements."""
