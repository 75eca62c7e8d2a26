"""The stage tools that show what pages did."""

import base64
from typing import Annotated, Any

import msgspec

from holdfast.builtin.stage import actions
from holdfast.builtin.stage.answers import page_answer
from holdfast.builtin.stage.browser import Stage
from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError
from holdfast.builtin.stage.codes import (
    NO_ELEMENT,
    NOT_YET,
    PAGE_HUNG,
    SCRIPT_FAILED,
    UNSUPPORTED_HERE,
)
from holdfast.builtin.stage.dialogs import DialogPolicy
from holdfast.builtin.stage.downloads import Download
from holdfast.builtin.stage.fence import fence, one_line, plain_text
from holdfast.builtin.stage.files import FILE_THREADS
from holdfast.builtin.stage.launch import BrowserProcess
from holdfast.builtin.stage.limits import LOAD_SECONDS
from holdfast.builtin.stage.page_log import Request, thrown_text
from holdfast.builtin.stage.settle import settle, tab_state
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.tools.base import (
    Budget,
    OptionalRef,
    Seconds,
    StageTools,
    TabId,
)
from holdfast.model import codes
from holdfast.toolkit import Call, Image, Meta, Reply, ToolError

_MAX_SCRIPT = 20_000
_MAX_SCREENSHOT_SIDE = 8000


class ObservingTools(StageTools):
    """Tools for dialogs, downloads, screenshots, logs and requests, and for running scripts."""

    async def dialogs(
        self,
        call: Call,
        accept: Annotated[bool | None, "Answer the next dialogs so; else they are dismissed."] = None,
        text: Annotated[Annotated[str, Meta(max_length=2000)] | None, "For a prompt."] = None,
        count: Annotated[int, "How many; -1 for all.", Meta(ge=-1, le=100)] = 1,
    ) -> dict[str, Any]:
        """Decide beforehand how dialogs (alert, confirm, prompt) are answered; list those so far."""
        stage = self._owners.stage(call)
        if accept is not None:
            stage.dialogs.policy = DialogPolicy(accept=accept, text=text, left=count)
        lines = [
            f"{number} {dialog.kind} {'accepted' if dialog.accepted else 'dismissed'} in {dialog.tab}: {one_line(dialog.message, 300)}"
            for number, dialog in stage.dialogs.recent
        ]
        policy = stage.dialogs.policy
        will = "dismiss" if policy.left == 0 or not policy.accept else "accept"
        return page_answer(
            stage, lines[::-1], 1500, stage=stage.id, next=will, dropped=stage.dialogs.recent.dropped
        )

    async def downloads(
        self,
        call: Call,
        number: Annotated[int, "Which to save.", Meta(ge=0)] = 0,
        save_as: Annotated[str, "A new file of the session."] = "",
    ) -> dict[str, Any]:
        """List downloads, or save one."""
        stage = self._owners.stage(call)
        await stage.browser.update_unreported_downloads()
        if number or save_as:
            download, process = _find_download(stage, number)
            if not save_as:
                raise ToolError(codes.BAD_ARGUMENT, f"Pass save_as: the file to save download {number} as.")
            files = await self._session_files(call)
            saved = await FILE_THREADS.run(
                files.copy_out, process.folder, f"{stage.download_folder}/{download.guid}", save_as
            )
            return {"saved": saved, "bytes": download.received}
        lines = [
            f"{number} {download.state}{f' ({download.reason})' if download.reason else ''} {download.received} bytes"
            f" {_describe_file(download)}"
            for number, download in stage.downloads
        ]
        return page_answer(stage, lines, 3000, stage=stage.id, dropped=stage.downloads.dropped)

    async def screenshot(
        self,
        call: Call,
        ref: OptionalRef = "",
        full: Annotated[bool, "The whole page."] = False,  # noqa: FBT002 - an argument
        tab: TabId = "",
    ) -> Reply:
        """Take a picture."""
        stage, found_tab, number = self._target(call, ref, tab)
        async with found_tab.lock:
            clip = None
            if number is not None:
                document = found_tab.find_ref(number)
                if document.frame_id != found_tab.target_id:
                    message = (
                        f"{ref} is in a frame. Take a picture of the whole page: screenshot without ref."
                    )
                    raise ToolError(UNSUPPORTED_HERE, message)
                box = await found_tab.run(document, "box", ref=number)
                if box is None:
                    raise await actions.stale_error(found_tab, number)
                clip = cdp.PageViewport(
                    x=box["x"],
                    y=box["y"],
                    width=min(max(1.0, box["width"]), _MAX_SCREENSHOT_SIDE),
                    height=min(max(1.0, box["height"]), _MAX_SCREENSHOT_SIDE),
                    scale=1,
                )
            elif full:
                metrics = await found_tab.send(cdp.PageGetLayoutMetrics())
                size = metrics.css_content_size
                height = min(size.height, _MAX_SCREENSHOT_SIDE)
                clip = cdp.PageViewport(
                    x=0, y=0, width=min(size.width, _MAX_SCREENSHOT_SIDE), height=height, scale=1
                )
            shot = await found_tab.send(
                cdp.PageCaptureScreenshot(format="png", clip=clip, capture_beyond_viewport=clip is not None)
            )
        data = page_answer(stage, [], 300, tab=found_tab.id)
        return Reply([Image(base64.b64decode(shot.data))], data)

    async def console(
        self,
        call: Call,
        after: Annotated[int, "Only higher numbers.", Meta(ge=0)] = 0,
        level: Annotated[str, "Such as error."] = "",
        tab: TabId = "",
    ) -> dict[str, Any]:
        """List what the page logged, newest first."""
        stage, found_tab = self._owners.tab(call, tab)
        lines = [
            f"{number} {line.level}: {one_line(line.text, 400)}{f' ({one_line(line.where, 120)})' if line.where else ''}"
            for number, line in found_tab.log.console.after(after)
            if not level or line.level == level
        ]
        return page_answer(
            stage,
            lines[::-1],
            2000,
            tab=found_tab.id,
            last=found_tab.log.console.count,
            dropped=found_tab.log.console.dropped,
        )

    async def requests(
        self,
        call: Call,
        filter: Annotated[str, "Part of the address."] = "",
        number: Annotated[int, "Show this one.", Meta(ge=0)] = 0,
        budget: Budget = 2000,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """List the page's requests, newest first, or show one."""
        stage, found_tab = self._owners.tab(call, tab)
        if number:
            request = found_tab.log.requests.get(number)
            if request is None:
                raise ToolError(
                    NO_ELEMENT,
                    f"There is no request {number}, or it is no longer kept.",
                    hint="To list the requests, call requests without number.",
                )
            return page_answer(
                stage, await _describe_request(found_tab, request, budget), budget, tab=found_tab.id
            )
        lines = [
            f"{number} {request.method} {request.status or request.failure or 'pending'} {request.kind} {one_line(request.url, 300)}"
            for number, request in found_tab.log.requests
            if filter in request.url
        ]
        return page_answer(
            stage, lines[::-1], budget, tab=found_tab.id, dropped=found_tab.log.requests.dropped
        )

    async def evaluate(
        self,
        call: Call,
        script: Annotated[
            str,
            "JavaScript; its last value is the answer.",
            Meta(max_length=_MAX_SCRIPT),
        ],
        tab: TabId = "",
        timeout: Seconds = 10.0,
        budget: Budget = 2000,
    ) -> dict[str, Any]:
        """Run JavaScript in the page, with all its rights."""
        stage, found_tab = self._owners.tab(call, tab)
        async with found_tab.lock:
            before = tab_state(found_tab)
            command = cdp.RuntimeEvaluate(
                expression=script, return_by_value=True, await_promise=True, user_gesture=True
            )
            try:
                result = await found_tab.send(command, timeout=timeout)
            except CdpError as error:  # a symbol, or an object that contains itself
                raise ToolError(SCRIPT_FAILED, f"The value cannot be shown: {error}.") from None
            except ToolError as error:
                if error.code is not PAGE_HUNG:
                    raise
                raise ToolError(PAGE_HUNG, f"The script did not end within {timeout:g} s.") from None
            if result.exception_details is not None:
                thrown = thrown_text(result.exception_details)
                raise ToolError(SCRIPT_FAILED, "The script threw an error.", page=fence(one_line(thrown)))
            await settle(found_tab, before, LOAD_SECONDS)
        value = result.result
        shown = value.unserializable_value or (
            msgspec.json.encode(value.value).decode() if value.type != "undefined" else "undefined"
        )
        return page_answer(stage, plain_text(shown).split("\n"), budget, tab=found_tab.id)


def _describe_file(download: Download) -> str:
    if not download.is_reported:
        return "of a page or frame that was closed"
    return f"{one_line(download.suggested_name, 150)} from {one_line(download.url, 200)}"


def _find_download(stage: Stage, number: int) -> tuple[Download, BrowserProcess]:
    """Return a complete download, and the browser that has its file. Raises if there is none, or if it is not complete."""
    if stage.browser.process is None:
        message = "The downloads of an attached browser are in the user's own folder. They cannot be saved from here."
        raise ToolError(UNSUPPORTED_HERE, message)
    download = stage.downloads.get(number)
    if download is None:
        raise ToolError(
            NO_ELEMENT,
            f"There is no download {number}.",
            hint="To list the downloads, call downloads without arguments.",
        )
    if download.state == "canceled":
        why = f" ({download.reason})" if download.reason else ""
        more = " Another stage has room for more: call open." if download.reason else ""
        hint = f"Start the download again in the page.{more}"
        raise ToolError(NO_ELEMENT, f"Download {number} was cancelled{why}.", hint=hint)
    if download.state != "completed":
        done = f"{download.received} bytes{f' of {download.total}' if download.total else ''}"
        raise ToolError(NOT_YET, f"Download {number} is not complete: {done}.", hint="Try again later.")
    return download, stage.browser.process


async def _describe_request(tab: Tab, request: Request, budget: int) -> list[str]:
    lines = [f"{request.method} {one_line(request.url, 1000)}"]
    lines += _headers("> ", request.headers)
    status = (
        f"{request.status} {one_line(request.status_text, 80)}"
        if request.status
        else request.failure or "pending"
    )
    lines.append(f"{status}, {request.size if request.size is not None else '?'} bytes")
    lines += _headers("< ", request.response_headers)
    if (
        request.ended_at is not None
        and not request.failure
        and request.mime_type.startswith(("text/", "application/"))
    ):
        try:
            body = await tab.connection.send(
                cdp.NetworkGetResponseBody(request_id=request.id), request.session
            )
        except Exception:
            return lines
        if not body.base64_encoded:
            lines += plain_text(body.body[: budget * 4]).split("\n")
    return lines


def _headers(prefix: str, headers: dict[str, str]) -> list[str]:
    return [f"{prefix}{one_line(name, 100)}: {one_line(value)}" for name, value in headers.items()]
