
; x86-64 Linux.

@futex_number = internal constant i64 202

declare void @llvm.x86.sse2.pause()

define internal void @relax() {
  call void @llvm.x86.sse2.pause()
  ret void
}
