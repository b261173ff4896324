"""AMD's GPUs: LLVM IR to code objects (hsaco), which are compiled anywhere."""
