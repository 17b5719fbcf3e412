"""From a source to records: archives, databases and text files, their formats, and the rows or objects in them."""
