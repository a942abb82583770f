"""Several plays side by side: with the documents, with an earlier run, as a matrix."""
