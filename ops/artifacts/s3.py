"""Artifacts in a bucket of Amazon S3 or of a store that speaks its protocol (MinIO, Ceph, Garage, 阿里云 OSS ...).

The client is obstore, in the extra `s3`: only this room knows it, and only where the settings name a bucket. Credentials come
from where every S3 client looks for them: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or the machine's role.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from obstore import exceptions
from obstore.store import S3Store

from schemas.artifacts import is_private
from schemas.errors import InvalidSettings, Unavailable

_OPTIONS = ("endpoint", "region", "virtual_host")
_TIMEOUT = timedelta(seconds=30)
_RETRY_SECONDS = 15


class S3Shelf:
    """A shelf in a bucket. `url`: `s3://bucket/prefix?endpoint=https://host&region=name&virtual_host=true`, all after the bucket optional.

    Raises:
        InvalidSettings: an option that is none, or a value that does not fit.
    """

    def __init__(self, url: str, *, retry_seconds: float = _RETRY_SECONDS) -> None:
        parts = urlsplit(url)
        given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unknown = [name for name in given if name not in _OPTIONS]
        if unknown:
            raise InvalidSettings(f"an S3 URL has no option {unknown[0]!r}; it has: {', '.join(_OPTIONS)}", path="artifacts_url")
        self._bucket = parts.hostname or ""
        config: dict[str, Any] = {"region": given.get("region", "us-east-1")}
        if "endpoint" in given:
            config["endpoint"] = given["endpoint"]
        try:
            self._store = S3Store(
                self._bucket,
                prefix=parts.path.strip("/") or None,
                virtual_hosted_style_request=given.get("virtual_host", "false") == "true" or "endpoint" not in given,
                client_options={"allow_http": given.get("endpoint", "").startswith("http://"), "timeout": _TIMEOUT},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=retry_seconds)},
                **config,
            )
        except exceptions.BaseError as error:
            raise InvalidSettings(f"the bucket cannot be used: {_short(error)}", path="artifacts_url") from error

    async def save(self, name: str, data: bytes) -> None:
        """See `ops.artifacts.keeping.Shelf`, here and below."""
        with self._translated():
            await self._store.put_async(_key(name), data, use_multipart=False)

    async def load(self, name: str) -> tuple[bytes, float] | None:
        """Return bytes and time."""
        with self._translated():
            try:
                found = await self._store.get_async(_key(name))
                return bytes(await found.bytes_async()), found.meta["last_modified"].timestamp()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    async def remove(self, name: str) -> None:
        """Take away."""
        with self._translated():
            try:
                await self._store.delete_async(_key(name))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise

    async def saved_before(self, moment: float, *, private: bool, limit: int) -> list[str]:
        """Return old names."""
        found: list[str] = []
        with self._translated():
            async for objects in self._store.list(_kind(private=private)):
                for each in objects:
                    if each["last_modified"].timestamp() < moment:
                        found.append(each["path"].rpartition("/")[2])
                    if len(found) == limit:
                        return found
        return found

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            raise Unavailable(f"the bucket of artifacts, {self._bucket}: {_short(error)}") from error


def _kind(*, private: bool) -> str:
    return "private/" if private else "shared/"


def _key(name: str) -> str:
    return _kind(private=is_private(name)) + name


def _short(error: BaseException) -> str:
    """The first line: the rest is the library's own structures."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
