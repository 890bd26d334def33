"""What every test shares."""

from hypothesis import settings

# The same examples on every machine and every run: a failure here is a failure there.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
