"""Other people's machines and runtimes as tables: which operators of TFLite they take."""
