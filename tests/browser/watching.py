"""A page in a browser, with everything that it says and asks for."""


class Watched:
    """A page with everything that it said or asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.problems, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dialog)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".cell:not([hidden])[data-ready]", timeout=120_000)

    def _dialog(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def figure(self, name):
        return float(self.page.locator(f"[data-outcome={name}]").first.get_attribute("data-value"))

    def move(self, threshold):
        self.page.locator(".exact").first.fill(repr(threshold))
