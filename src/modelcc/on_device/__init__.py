"""What a person asks of a model on a microcontroller: how long layers take, which form is best."""
