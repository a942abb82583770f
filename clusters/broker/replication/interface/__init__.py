"""What passes between the core and the world. A new request, response or timer begins here.

Values only: no file of this room decides anything.
"""
