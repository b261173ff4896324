"""The version of modelcc."""

VERSION = "0.1.0"
