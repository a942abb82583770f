"""Web pages of the runs in a directory: `neaptide serve`.

listing    which runs there are, and what each came to
inside     files of a run that may be read, and nothing outside it
live       a run that is going on: how far it is
node_logs  the logs of nodes, by the time of the run
nights     campaigns of nights, as far as there are any
zipping    a run as a zip, streamed
urls       where everything is
guard      who may ask: the Host header, and the headers of every response
pages      one function for each page: what the templates are given
app        routes

The rule: nothing is kept and nothing is changed. Pages read run directories, whoever writes them.
"""
