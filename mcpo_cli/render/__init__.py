"""Tables, figures and their text forms: what artifacts and comparisons are shown with."""
