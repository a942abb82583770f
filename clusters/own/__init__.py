"""Systems of the user's own, named by a file: clusters that are started so, or just used."""
