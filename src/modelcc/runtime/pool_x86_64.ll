; Made of pool.c by tools/compile_pool.py; not to be changed by hand.
declare void @llvm.x86.sse2.pause()

define internal void @futex_wake(ptr %word) {
entry:
  %call = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 129, i32 2147483647)
  ret void
}

define internal void @relax() {
entry:
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal void @futex_wait(ptr %word, i32 %value) {
entry:
  %call = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 128, i32 %value, ptr null)
  ret void
}
