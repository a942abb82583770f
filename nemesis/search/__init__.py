"""The search for losing schedules, in the simulation.

observed   what conditions see of a world
perform    does the steps of schedules to a world
ending     heals a world, lets it come to rest, reads it to the end
judge      what a world that is at rest proves
"""
