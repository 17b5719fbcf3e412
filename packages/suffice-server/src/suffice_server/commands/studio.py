"""`suffice studio`: a folder of recordings, policies and logs in the browser of this machine."""

from __future__ import annotations

import secrets
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.console import say
from suffice.errors import MissingExtraError
from suffice_server.serve import check_extra


def studio_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Recordings, policies, logs, questions.")] = Path(),
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port on 127.0.0.1; 0 = a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open a folder in the browser: a page on 127.0.0.1 for whoever has the printed address; it writes nothing.

    Example: suffice studio runs
    """
    try:
        check_extra("the studio")
    except MissingExtraError as error:
        raise MissingExtraError("the studio", distribution="suffice-server") from error
    from suffice_server.serve.running import bind, run_app, url_of
    from suffice_server.studio import studio_app
    from suffice_server.studio.door import OPEN

    token, once = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    app = studio_app(folder, token=token, once=once if browser else None)
    with bind("127.0.0.1", port) as listener:
        address = f"{url_of(listener)}{OPEN}?token="

        def ready() -> None:
            say(f"the studio of {folder}: {address}{token}\nCtrl-C ends it")
            if browser:  # other users of the machine may read what a browser is started with
                # Beside the server: a browser on a terminal returns when it is closed.
                threading.Thread(target=webbrowser.open, args=(address + once,), daemon=True).start()

        run_app(app, listener, ready=ready)
