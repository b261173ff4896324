"""AMD's GPUs: LLVM text to code objects (hsaco), which are compiled anywhere."""
