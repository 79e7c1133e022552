# What we subclass and decorate with of verl, which ships no types; the rest of it is Any.
