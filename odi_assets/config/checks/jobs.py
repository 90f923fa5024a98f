"""Jobs: names that are taken, tags that no node has."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.checks.view import ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, about, closest


def wrong_jobs(project: ProjectView) -> Iterator[Mistake]:
    """Find jobs with the name of a pipeline or of another job, and tags that no node has."""
    taken = {pipeline.pipeline for pipeline in project.config.pipelines}
    known = {tag for pipeline in project.config.pipelines for tag in pipeline.tags}
    known |= {tag for node in project.nodes for tag in node.config.tags}
    for i, job in enumerate(project.config.jobs):
        if job.job in taken:
            yield about(job.job, "is the name of another job: each pipeline is one, too", at=("jobs", i, "job"))
        taken.add(job.job)
        for j, tag in enumerate(job.tags):
            if tag not in known:
                text = "is the tag of no node: give it to one, or to a pipeline, with `tags`"
                yield about(tag, text, at=("jobs", i, "tags", j), suggestion=closest(tag, known))
