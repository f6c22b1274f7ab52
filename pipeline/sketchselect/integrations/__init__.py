"""Jobs as tasks of Prefect and Airflow, and verbs on AnnData objects in the form of scanpy."""


def missing_extra(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of an import that needs an extra, worded for users if it is the extra that is missing."""
    if (error.name or "").partition(".")[0] != extra:
        return error
    message = f"sketchselect.{extra} needs the extra {extra!r}: pip install 'sketchselect[{extra}]'"
    return ModuleNotFoundError(message, name=extra)
