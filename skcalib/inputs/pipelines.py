"""Data beside `X` that a pipeline passes to one of its steps without transforming it."""

import inspect
from typing import Any

from sklearn.pipeline import Pipeline


def refuse_untransformed(estimator: Any, data: Any, name: str) -> None:
    """Refuse data that a pipeline passed on as it came, while it transformed `X`.

    A pipeline says nothing of itself to its steps. With ``transform_input`` it transforms such
    data, too, so that the step gets other data than the pipeline.
    """
    frame = inspect.currentframe() if data is not None else None
    while frame is not None:
        pipeline, given = frame.f_locals.get("self"), frame.f_locals.get("params")
        if isinstance(pipeline, Pipeline) and isinstance(given, dict):
            passed = any(value is data for value in (*given.values(), frame.f_locals.get("y")))
            if passed and _is_behind(type(estimator), pipeline):
                raise ValueError(
                    f"{type(estimator).__name__} is behind other steps of a pipeline, which do "
                    f"not transform its {name}. Put these steps into its encoder, as in "
                    f"encoder=make_pipeline(...), or transform X and {name} before. With "
                    f"metadata routing, a pipeline has transform_input=[{name!r}]."
                )
        frame = frame.f_back


def _is_behind(kind: type, pipeline: Pipeline) -> bool:
    """Whether other steps come before the one that is of a kind, or that contains such one."""
    steps = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    holds = [
        isinstance(step, kind)
        or any(isinstance(inner, kind) for inner in step.get_params().values())
        for step in steps
    ]
    return any(holds) and not holds[0]
