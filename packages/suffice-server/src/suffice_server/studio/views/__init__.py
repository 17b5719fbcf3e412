"""The views of the studio: one module for each view, with its addresses, its template and, if it has one, its script.

A view has page functions, which take a `suffice_server.studio.view.View` and return a response, and a `ViewModule` that lists
them.  A template `NAME.html` extends `base.html`; a script is `static/NAME.js`, an ES module, which its template names in
the block `scripts`.
"""

from suffice_server.studio.views.contents import CONTENTS_VIEW
from suffice_server.studio.views.deciding import DECIDING_VIEW
from suffice_server.studio.views.exports import EXPORTS_VIEW
from suffice_server.studio.views.labelling import LABELLING_VIEW
from suffice_server.studio.views.logs import LOG_VIEW
from suffice_server.studio.views.policies import POLICY_VIEW
from suffice_server.studio.views.questions import QUESTIONS_VIEW
from suffice_server.studio.views.recordings import RECORDING_VIEW
from suffice_server.studio.views.trying import TRYING_VIEW

__all__ = [
    "CONTENTS_VIEW",
    "DECIDING_VIEW",
    "EXPORTS_VIEW",
    "LABELLING_VIEW",
    "LOG_VIEW",
    "POLICY_VIEW",
    "QUESTIONS_VIEW",
    "RECORDING_VIEW",
    "TRYING_VIEW",
]
