"""Files at paths and URLs: written as a whole, read back, removed; refusals that name the address and no secret."""

import ast
import os
import re
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from tests.structure import Module, package_modules

from sketchselect import location as module
from sketchselect import open_matrix
from sketchselect._text import without_credentials
from sketchselect.errors import BadParameter, SourceError
from sketchselect.location import Location, is_scheduler_file, is_url, locate, location_of, refusal


@pytest.fixture(params=["path", "file URL", "memory URL"])
def folder(request, tmp_path):
    yield {"path": str(tmp_path), "file URL": f"file://{tmp_path}", "memory URL": f"memory://{tmp_path.name}"}[
        request.param
    ]
    fsspec.filesystem("memory").store.clear()


def test_a_file_is_written_read_listed_and_removed(folder):
    place = location_of(folder).join("a.sks")
    assert place.read() is None
    for content in (b"first", b"second and longer"):
        place.write(content)
        assert place.read() == content
        assert location_of(folder).read("a.sks") == content
    assert [(key, size) for key, size, _ in location_of(folder).files()] == [("a.sks", 17)]
    place.remove()
    assert place.read() is None
    with pytest.raises(FileNotFoundError, match=r"a\.sks"):
        place.remove()


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert location_of("a.sks") == Location(f"{tmp_path}/a.sks")
    assert location_of("s3://bucket/a.sks") == Location("s3://bucket/a.sks")


def test_the_old_content_stays_when_the_new_cannot_be_written(tmp_path, monkeypatch):
    place = location_of(tmp_path / "a.sks")
    place.write(b"old")

    def refuse(handle):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module.os, "fsync", refuse)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.sks'"):
        place.write(b"new")
    assert place.read() == b"old"
    assert os.listdir(tmp_path) == ["a.sks"]
    place.write(b"new", durable=False)
    assert place.read() == b"new"


@pytest.mark.parametrize(("action", "method"), [("read", "cat_file"), ("written", "_open")])
def test_what_a_remote_file_system_raises_is_one_line_without_secrets(monkeypatch, action, method):
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(self, *args, **kwargs):
        raise RuntimeError("no credentials\nfor secret hushhush")

    monkeypatch.setattr(MemoryFileSystem, method, refuse)
    place = Location("memory://box/a.sks", {"token": "hushhush"})
    with pytest.raises(
        SourceError, match=rf"memory://box/a\.sks: cannot be {action} \(RuntimeError: no cred"
    ) as caught:
        place.read() if action == "read" else place.write(b"x")
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["abc", {"region_name": "us-east-1"}])
def test_a_region_and_arguments_of_the_client_that_do_not_go_together_are_refused(given):
    with pytest.raises(BadParameter, match="client_kwargs"):
        locate("s3://box/x", {"region": "eu-west-3", "client_kwargs": given})


LITERAL = re.compile(r"(^|\W)://$|^\.json$")
"""What is looked for in a text by code that decides whether it is a URL (of any scheme), or a scheduler file."""

SEARCHES = {"match", "fullmatch", "search", "compile", "startswith", "endswith", "find", "count"}


def decided_by_hand(module: Module) -> list[str]:
    """Return the places that look for themselves whether a text is a URL, or a scheduler file."""
    return [
        f"{module.name}, line {node.lineno}: use is_url or is_scheduler_file of location"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and LITERAL.search(part.value)
    ]


def test_location_alone_decides_what_is_a_url_or_a_scheduler_file():
    modules = [module for module in package_modules() if module.name != "location"]
    assert [line for module in modules for line in decided_by_hand(module)] == []


@pytest.mark.parametrize(
    "text", ['"://" in x', 'x.endswith(".json")', 're.match(r"[a-z]+://", x)', 'x[-5:] == ".json"', 'x.find("://")']
)
def test_a_decision_by_hand_is_noticed(text):
    assert decided_by_hand(Module("workflow.a", text))


@pytest.mark.parametrize("text", ["s3://bucket/x", "http://host/x.json", "S3+a.b-c://x"])
def test_a_url_is_no_local_path_and_no_scheduler_file(text):
    assert is_url(text)
    assert not is_scheduler_file(text)
    assert is_scheduler_file("a/scheduler.json")
    assert not any(is_url(path) for path in ("a/b", "/a:/b", "1://x", "a b://x", "C:x", ""))


def test_addresses_in_errors_of_any_aiohttp_are_hidden() -> None:
    """Before 3.11 what it keeps of a request was no named tuple."""

    class Request:
        __slots__ = ("real_url",)

        def __init__(self) -> None:
            self.real_url = "https://user:secret@host/rows.zarr?signature=abc"

    class ClientResponseError(Exception):
        __module__ = "aiohttp.client_exceptions"
        status = 403
        request_info: Any = Request()

    error = ClientResponseError("of https://user:secret@host/rows.zarr")
    assert refusal(error) == "the server answers 403"
    assert "secret" not in f"{error} {error.request_info.real_url}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/why?.npy", None),
        ("s3://bucket/a?b/rows#1?.zarr", None),
        ("gs://bucket/a?", None),
        ("memory://a?b*[c]", None),
        ("az://box@account/a?b=c", None),
        ("s3://bucket/a?versionId=1&X-Amz-Signature=word", "s3://bucket/a"),
        ("az://box/a?sv=2024&sig=word", "az://box/a"),
        ("s3://bucket/a?access_token=word", "s3://bucket/a"),
        ("s3://bucket/a?aws_secret_access_key=word", "s3://bucket/a"),
        ("s3://bucket/a?apikey=word", "s3://bucket/a"),
        ("https://host/a?b#c", "https://host/a"),
        ("http://host/a?sig=word", "http://host/a"),
    ],
)
def test_an_address_keeps_the_question_marks_of_names_and_hides_queries(url: str, shown: str | None) -> None:
    address = Location(url).address
    assert address == (shown or url)
    assert without_credentials(f"{address}: gone") == f"{address}: gone"
    assert without_credentials(f"{url}: gone") == (f"{shown}?***: gone" if shown else f"{url}: gone")


def test_an_address_hides_a_signature_behind_a_number_sign() -> None:
    assert Location("s3://bucket/a#b?sig=word").address == "s3://bucket/a"


def test_an_error_names_a_key_with_a_question_mark() -> None:
    with pytest.raises(SourceError, match=r"memory://why\?\.npy: "):
        open_matrix("memory://why?.npy")


def test_requests_for_objects_of_s3_are_few_unless_the_user_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"config_kwargs": {"read_timeout": 5}}
    expected = {"config_kwargs": {"read_timeout": 5, "retries": module.S3_RETRIES}}
    assert Location("s3://bucket/a", given).file_options == expected
    for options in ({"config_kwargs": {"retries": {"max_attempts": 9}}}, {"config_kwargs": "none"}):
        assert Location("s3://bucket/a", options).file_options == options
    assert Location("gs://bucket/a", given).file_options == given
    with monkeypatch.context() as patch:
        patch.setitem(_registry, "s3", MemoryFileSystem)  # of another package
        assert Location("s3://bucket/a").file_options == {}
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "9")
    assert Location("s3://bucket/a", given).file_options == given


def test_s3fs_reads_whole_files_in_one_request_each(monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location("s3://bucket/a")
    assert location.whole_file_options == {"max_concurrency": 1, **location.file_options}
    stated = Location("s3://bucket/a", {"max_concurrency": 4})
    assert stated.whole_file_options["max_concurrency"] == 4
    assert "max_concurrency" not in Location("gs://bucket/a").whole_file_options
    with monkeypatch.context() as patch:
        patch.setitem(_registry, "s3", MemoryFileSystem)  # of another package
        assert location.whole_file_options == {}
