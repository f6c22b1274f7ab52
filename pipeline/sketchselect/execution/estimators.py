"""What all estimators have in common: the names that users see, and scikit-learn's callbacks (its SLEP 23)."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar, cast

from sketchselect._progress import Progress, reporting_tasks, surrounding_tasks
from sketchselect._sklearn import HAS_CALLBACKS, available_if
from sketchselect._text import did_you_mean
from sketchselect.execution.engine import PreparedKeywords

Fit = TypeVar("Fit", bound=Callable[..., Any])


class UserEstimator:
    """Mixin of estimators whose `dir` is for users, and whose fits report to scikit-learn's callbacks, from 1.9 on."""

    implementation: ClassVar[frozenset[str]] = frozenset()
    """Methods that are for authors of estimators."""

    def __new__(cls, *arguments: Any, **parameters: Any) -> Self:
        """Return a new estimator; raise `TypeError` for prepare steps, which its fit takes, and for unknown names."""
        if "prepare" in parameters and PreparedKeywords.__name__ in str(inspect.signature(cast(Any, cls).fit)):
            name, steps = cls.__name__, parameters["prepare"]
            raise TypeError(
                f"{name}: prepare belongs to fit, not to the constructor: {name}(...).fit(X, prepare={steps})"
            )
        former = getattr(cls, "renamed", ())
        # Decorators of others may take keywords that the constructor itself does not; ours takes the former names.
        known = inspect.signature(cls.__init__, follow_wrapped=bool(former)).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            names = [name for name in known if name != "self"]
            for name in [name for name in parameters if name not in (*names, *former)]:
                hint = did_you_mean(name, names, f"; parameters: {', '.join(names)}")
                raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}{hint}")
        return super().__new__(cls)

    @available_if(lambda estimator: HAS_CALLBACKS)  # type: ignore[untyped-decorator]
    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set what is called while `fit` runs, such as ``sklearn.callback.ProgressBar()``; nothing removes all.

        Tasks of a fit are its passes, with their partitions, and its loops: iterations of k-means (which end where a
        callback returns True, and of which callbacks get a fitted estimator), folds, models of a path, halves of
        stability selection. A callback may be called from several threads, one at a time.

        Raises
        ------
        TypeError
            For what is no callback.
        """
        from sklearn.callback import CallbackSupportMixin

        CallbackSupportMixin.set_callbacks(self, *callbacks)
        return self

    def __dir__(self) -> list[str]:
        """Return parameters, fitted attributes and methods for users, and nothing else."""
        cls = type(self)
        methods = {
            name
            for name in super().__dir__()
            if not name.startswith("_")
            and name not in cls.implementation
            and not isinstance(inspect.getattr_static(cls, name, None), property)
            and callable(getattr(self, name, None))
        }
        fitted = {name for name in vars(self) if name.endswith("_") and not name.startswith("_")}
        if fitted:
            computed = (name for name, value in inspect.getmembers_static(cls) if isinstance(value, property))
            fitted |= {name for name in computed if name.endswith("_") and hasattr(self, name)}
        return sorted(methods | fitted | set(cast(Any, self).get_params(deep=False)))


class FitTasks(Progress):
    """The tasks of a fit, as scikit-learn's callbacks see them: stages and their parts.

    Of stages within a stage, such as the passes of an iteration, callbacks see nothing.

    Parameters
    ----------
    context : sklearn.callback.CallbackContext
        The context of the fit.
    estimator : estimator
        What is fitted.
    data : dict
        X, y and metadata.
    """

    def __init__(self, context: Any, estimator: Any, data: Mapping[str, Any]) -> None:
        self._context, self._data = context, {"estimator": estimator, **data}
        self._lock, self._stage, self._depth, self._left = threading.Lock(), context, 0, 0

    @contextmanager
    def _calling(self) -> Iterator[None]:
        # What a callback computes, such as a score, is no task of the fit.
        with self._lock, reporting_tasks(None):
            yield

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Begin a task with these parts."""
        with self._calling():
            self._depth += 1
            if self._depth == 1:
                self._stage = self._context.subcontext(task_name=stage, max_subtasks=n_partitions)
                self._left = n_partitions
                self._stage.call_on_fit_task_begin(**self._data)

    def advance(self, nbytes: int) -> None:
        """End a part."""
        self.end_part()

    def end_part(self, attributes: Callable[[], dict[str, Any]] | None = None) -> bool:
        """End a part, after which the estimator would have these attributes; return whether callbacks say to stop."""
        with self._calling():
            # A partition whose worker died is done twice.
            if self._depth != 1 or not self._left:
                return False
            self._left -= 1
            part = self._stage.subcontext(task_name="part").call_on_fit_task_begin(**self._data)
            return bool(part.call_on_fit_task_end(reconstruction_attributes=attributes, **self._data))

    def finish(self, stage: str) -> None:
        """End the task."""
        with self._calling():
            self._depth -= 1
            if not self._depth:
                self._stage.call_on_fit_task_end(**self._data)

    @contextmanager
    def stage(self, name: str, n_parts: int) -> Iterator[None]:
        """Be in a task of at most so many parts."""
        self.start(name, 0, n_parts)
        try:
            yield
        finally:
            self.finish(name)


def fit_tasks() -> FitTasks | None:
    """Return the tasks of the fit that runs, if it has callbacks."""
    return cast(FitTasks | None, surrounding_tasks())


def with_callbacks(fit: Fit) -> Fit:
    """Let a method `fit` report to the estimator's callbacks, if it has any."""
    signature = inspect.signature(fit)

    @wraps(fit)
    def reporting(*arguments: Any, **options: Any) -> Any:
        estimator = arguments[0]
        if "_skl_callbacks" not in vars(estimator):
            return fit(*arguments, **options)
        from sklearn.callback import CallbackSupportMixin
        from sklearn.callback import with_callbacks as with_teardown

        given = signature.bind(*arguments, **options).arguments

        def run(estimator: Any) -> Any:
            context = CallbackSupportMixin._init_callback_context(estimator, max_subtasks=None)
            weight = given.get("sample_weight")
            metadata = {} if weight is None else {"sample_weight": weight}
            data = {"X": given["X"], "y": given.get("y"), "metadata": metadata}
            context.call_on_fit_task_begin(estimator=estimator, **data)
            with reporting_tasks(FitTasks(context, estimator, data)):
                fitted = fit(*arguments, **options)
            context.call_on_fit_task_end(estimator=estimator, reconstruction_attributes=dict, **data)
            return fitted

        return with_teardown(run)(estimator)

    return cast(Fit, reporting)
