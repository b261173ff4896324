"""Tables of the TFLite operators that other machines and runtimes support."""
