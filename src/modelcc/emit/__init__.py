"""A model in any form, for whoever asks: levels, code, C in a folder."""
