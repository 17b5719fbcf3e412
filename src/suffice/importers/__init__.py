"""Import logs that others recorded, and write them as recordings.

It reads files in many shapes, and returns a recording with a description of how each column was read.  A custom importer
is a function, registered by name.  The steps from ``suffice import FILE`` to a recording of a table, by
module:

1. `importing`, `mapping`: options, given or stored by the last import of the source; asks about ambiguities.
2. `sources`: an archive, a database or prose -> plain files; `recognise`, `importers`: the beginning of a file -> its format -> the
   function that reads it.
3. `records`, `literals`: files -> records, the rows of a table or the objects of a JSON file.
4. `fields`, `calls`, `shapes`, `wide_tables`, `whole_objects`: records -> a row for each question and round (`shape`).
5. `tool_answers`, `trees`, `left_out`: the rows that a filter keeps, with the cost of the others; `names`, `guesses`, `answer_or_gold`,
   `unnamed_answers`, `unread`: rows -> the
   meaning of their columns (`table_columns`), with notes.
6. `ids`, `stages`, `row_factors`, `speakers`: questions about the order and authors of rows, with `choices` to answer them; `runs`,
   `table_source`, `table_parts`: rows -> numbered rows of whole questions, all at once or in parts.
7. `grid`, `table_rounds`, `tally`: numbered rows -> rounds in columns (`round_columns`), with counts for notes.
8. `golds`, `columnar`: rounds in columns -> a table with gold answers, metrics and computed signals.
9. `parted_run`, `reading`: tables, in memory or on disk -> the figures of the summary, and the recording.
10. `preview`, `facts`, `alarms`: one question to compare with the log, and alarms about the reading, before anything is written.

Importers of traces and of other packages return trajectories, which are converted to rounds in columns and continue with step 8.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.importers.answers.imported import ImportedRun as ImportedRun
    from suffice.importers.files.recognise import Head as Head
    from suffice.importers.importers import (
        importer as importer,
        importer_names as importer_names,
        kind_of as kind_of,
        recognised_by as recognised_by,
        register_importer as register_importer,
    )
    from suffice.importers.importing import ImportSummary as ImportSummary, import_recording as import_recording
    from suffice.importers.rounds.trajectories import (
        ImportedTrajectory as ImportedTrajectory,
        one_call as one_call,
        score as score,
        unknown_metrics as unknown_metrics,
    )
    from suffice.importers.tables.tabular import read_tabular as read_tabular

__getattr__, __dir__, __all__ = lazy_face(__name__)
