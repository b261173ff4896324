"""Where commands build, for those that know the compiler."""

from __future__ import annotations

from modelcc.api import default_jobs
from modelcc.environment import Environment
from modelcc.targets.base import BuildConfig, Progress


def build_config_of(environment: Environment, no_cache: bool, progress: Progress) -> BuildConfig:
    """Where to build, and whom to tell."""
    jobs = default_jobs(environment)
    return BuildConfig(None if no_cache else environment.cache, jobs, progress)
