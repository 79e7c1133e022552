# Types for the parts of verl that we subclass or decorate with; verl ships no types, so the rest is Any.
