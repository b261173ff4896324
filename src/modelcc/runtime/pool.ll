; Made of pool.c by tools/compile_pool.py; not to be changed by hand.
; sha256 1b809e6993988b9b734345524a887a4a5fd48d15a06bb9bfdf68d7a95ca844ee
%struct.worker = type { ptr, i64, i32, [44 x i8], i64, [56 x i8] }
%struct.__sigset_t = type { [16 x i64] }
%struct.cpu_set_t = type { [16 x i64] }
declare void @llvm.lifetime.start.p0(ptr)
declare void @llvm.lifetime.end.p0(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare i32 @sched_yield()
declare i32 @pthread_join(i64, ptr)
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i64 @llvm.smax.i64(i64, i64)
declare i32 @llvm.smax.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)

define void @mcc_parallel_for(ptr %pool, ptr %body, ptr %ctx, i64 %extent, i64 %grain) {
entry:
  %cmp = icmp slt i64 %extent, 1
  br i1 %cmp, label %cleanup.cont, label %if.end
if.end:
  %spec.store.select = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %sub = add nsw i64 %extent, -1
  %div46 = udiv i64 %sub, %spec.store.select
  %add = add nuw nsw i64 %div46, 1
  %0 = load i32, ptr %pool, align 64
  %conv = sext i32 %0 to i64
  %cond47 = call i64 @llvm.smin.i64(i64 %add, i64 %conv)
  %cond = trunc nsw i64 %cond47 to i32
  %cmp9 = icmp slt i64 %cond47, 2
  br i1 %cmp9, label %if.then11, label %lor.lhs.false
lor.lhs.false:
  %busy = getelementptr inbounds nuw i8, ptr %pool, i64 64
  %1 = atomicrmw xchg ptr %busy, i32 1 acquire, align 64
  %tobool.not = icmp eq i32 %1, 0
  br i1 %tobool.not, label %if.end12, label %if.then11
if.then11:
  call void %body(ptr %ctx, i64 0, i64 %extent, i32 0)
  br label %cleanup.cont
if.end12:
  %body13 = getelementptr inbounds nuw i8, ptr %pool, i64 144
  store ptr %body, ptr %body13, align 16
  %ctx14 = getelementptr inbounds nuw i8, ptr %pool, i64 152
  store ptr %ctx, ptr %ctx14, align 8
  %extent15 = getelementptr inbounds nuw i8, ptr %pool, i64 160
  store i64 %extent, ptr %extent15, align 32
  %grain16 = getelementptr inbounds nuw i8, ptr %pool, i64 168
  store i64 %spec.store.select, ptr %grain16, align 8
  %pending = getelementptr inbounds nuw i8, ptr %pool, i64 192
  %sub18 = add nsw i32 %cond, -1
  store atomic i32 %sub18, ptr %pending monotonic, align 64
  %call = call i64 @publish(ptr %pool, i32 %cond)
  call void @run_piece(ptr %pool, i32 0, i32 %cond)
  call void @run_rest(ptr %pool, i64 %call, i32 %cond)
  call void @wait_for_workers(ptr %pool)
  store atomic i32 0, ptr %busy release, align 64
  br label %cleanup.cont
cleanup.cont:
  ret void
}

define internal i64 @publish(ptr %pool, i32 %threads) {
entry:
  %ticket = getelementptr inbounds nuw i8, ptr %pool, i64 128
  %0 = load atomic i64, ptr %ticket monotonic, align 64
  %add = add i64 %0, 1
  %conv2 = zext i32 %threads to i64
  %shl = shl nuw i64 %conv2, 32
  %conv3 = and i64 %add, 4294967295
  %or = or disjoint i64 %conv3, %shl
  %cmp18 = icmp sgt i32 %threads, 1
  br i1 %cmp18, label %for.body, label %for.cond.cleanup
for.cond.cleanup:
  store atomic i64 %or, ptr %ticket seq_cst, align 64
  %sleepers = getelementptr inbounds nuw i8, ptr %pool, i64 136
  %1 = load atomic i32, ptr %sleepers seq_cst, align 8
  %tobool.not = icmp eq i32 %1, 0
  br i1 %tobool.not, label %if.end, label %if.then
for.body:
  %indvars.iv = phi i64 [ %indvars.iv.next, %for.body ], [ 1, %entry ]
  %arrayidx = getelementptr inbounds nuw %struct.worker, ptr %pool, i64 %indvars.iv
  %claim = getelementptr inbounds nuw i8, ptr %arrayidx, i64 320
  store atomic i64 %or, ptr %claim monotonic, align 64
  %indvars.iv.next = add nuw nsw i64 %indvars.iv, 1
  %exitcond.not = icmp eq i64 %indvars.iv.next, %conv2
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body
if.then:
  call void @futex_wake(ptr %ticket)
  br label %if.end
if.end:
  ret i64 %or
}

define internal void @run_piece(ptr %pool, i32 %index, i32 %threads) {
entry:
  %extent = getelementptr inbounds nuw i8, ptr %pool, i64 160
  %0 = load i64, ptr %extent, align 32
  %sub = add nsw i64 %0, -1
  %grain = getelementptr inbounds nuw i8, ptr %pool, i64 168
  %1 = load i64, ptr %grain, align 8
  %div = sdiv i64 %sub, %1
  %add = add nsw i64 %div, 1
  %conv1 = sext i32 %threads to i64
  %add5 = add nsw i32 %index, 1
  %conv6 = sext i32 %add5 to i64
  %mul7 = mul nsw i64 %add, %conv6
  %div9 = sdiv i64 %mul7, %conv1
  %mul11 = mul nsw i64 %div9, %1
  %spec.select = call i64 @llvm.smin.i64(i64 %mul11, i64 %0)
  %conv = sext i32 %index to i64
  %mul = mul nsw i64 %add, %conv
  %div2 = sdiv i64 %mul, %conv1
  %mul4 = mul nsw i64 %div2, %1
  %body = getelementptr inbounds nuw i8, ptr %pool, i64 144
  %2 = load ptr, ptr %body, align 16
  %ctx = getelementptr inbounds nuw i8, ptr %pool, i64 152
  %3 = load ptr, ptr %ctx, align 8
  call void %2(ptr %3, i64 %mul4, i64 %spec.select, i32 %index)
  ret void
}

define internal void @run_rest(ptr %pool, i64 %ticket, i32 %threads) {
entry:
  %pending = getelementptr inbounds nuw i8, ptr %pool, i64 192
  %workers = getelementptr inbounds nuw i8, ptr %pool, i64 256
  %home = getelementptr inbounds nuw i8, ptr %pool, i64 200
  %wide.trip.count = zext nneg i32 %threads to i64
  br label %for.body
for.body:
  %indvars.iv = phi i64 [ 1, %entry ], [ %indvars.iv.next, %for.inc ]
  %0 = load atomic i32, ptr %pending acquire, align 64
  %tobool.not = icmp eq i32 %0, 0
  br i1 %tobool.not, label %cleanup, label %if.end
if.end:
  %arrayidx = getelementptr inbounds nuw %struct.worker, ptr %workers, i64 %indvars.iv
  %call = call i32 @claim(ptr %arrayidx, i64 %ticket)
  %tobool1.not = icmp eq i32 %call, 0
  br i1 %tobool1.not, label %for.inc, label %if.end3
if.end3:
  %call4 = call i32 @sched_getcpu()
  store atomic i32 %call4, ptr %home monotonic, align 8
  %1 = trunc nuw nsw i64 %indvars.iv to i32
  call void @run_piece(ptr %pool, i32 %1, i32 %threads)
  %2 = atomicrmw sub ptr %pending, i32 1 seq_cst, align 64
  br label %for.inc
for.inc:
  %indvars.iv.next = add nuw nsw i64 %indvars.iv, 1
  %exitcond.not = icmp eq i64 %indvars.iv.next, %wide.trip.count
  br i1 %exitcond.not, label %cleanup, label %for.body
cleanup:
  ret void
}

define internal void @wait_for_workers(ptr %pool) {
entry:
  %pending1 = getelementptr inbounds nuw i8, ptr %pool, i64 192
  br label %for.body
for.body:
  %i.015 = phi i32 [ 0, %entry ], [ %inc, %if.end ]
  %0 = load atomic i32, ptr %pending1 acquire, align 64
  %tobool.not = icmp eq i32 %0, 0
  br i1 %tobool.not, label %cleanup8, label %if.end
if.end:
  call void @relax()
  %inc = add nuw nsw i32 %i.015, 1
  %exitcond = icmp eq i32 %inc, 16384
  br i1 %exitcond, label %for.end, label %for.body
for.end:
  %waiting = getelementptr inbounds nuw i8, ptr %pool, i64 196
  store atomic i32 1, ptr %waiting seq_cst, align 4
  %1 = load atomic i32, ptr %pending1 seq_cst, align 64
  %tobool4.not16 = icmp eq i32 %1, 0
  br i1 %tobool4.not16, label %while.end, label %while.body
while.body:
  %2 = phi i32 [ %3, %while.body ], [ %1, %for.end ]
  call void @futex_wait(ptr %pending1, i32 %2)
  %3 = load atomic i32, ptr %pending1 seq_cst, align 64
  %tobool4.not = icmp eq i32 %3, 0
  br i1 %tobool4.not, label %while.end, label %while.body
while.end:
  store atomic i32 0, ptr %waiting monotonic, align 4
  br label %cleanup8
cleanup8:
  ret void
}

define ptr @mcc_pool_create(i32 %threads) {
entry:
  %spec.store.select = call i32 @llvm.smax.i32(i32 %threads, i32 1)
  %conv = zext nneg i32 %spec.store.select to i64
  %mul = shl nuw nsw i64 %conv, 7
  %sub = add nuw nsw i64 %mul, 4351
  %div35 = and i64 %sub, 549755809792
  %call = call ptr @mmap(ptr null, i64 %div35, i32 3, i32 34, i32 -1, i64 0)
  %cmp3 = icmp eq ptr %call, inttoptr (i64 -1 to ptr)
  br i1 %cmp3, label %cleanup, label %if.end6
if.end6:
  %call7 = call i32 @madvise(ptr %call, i64 %div35, i32 18)
  %tobool.not = icmp eq i32 %call7, 0
  br i1 %tobool.not, label %if.end10, label %if.then8
if.then8:
  %call9 = call i32 @munmap(ptr %call, i64 %div35)
  br label %cleanup
if.end10:
  %bytes11 = getelementptr inbounds nuw i8, ptr %call, i64 8
  store i64 %div35, ptr %bytes11, align 8
  %call12 = call i32 @start_workers(ptr %call, i32 %spec.store.select)
  store i32 %call12, ptr %call, align 64
  %cmp15 = icmp eq i32 %call12, %spec.store.select
  br i1 %cmp15, label %cleanup, label %if.end18
if.end18:
  call void @mcc_pool_destroy(ptr %call)
  br label %cleanup
cleanup:
  %retval.0 = phi ptr [ null, %if.end18 ], [ null, %if.then8 ], [ null, %entry ], [ %call, %if.end10 ]
  ret ptr %retval.0
}

define internal i32 @start_workers(ptr %pool, i32 %threads) {
entry:
  %all = alloca %struct.__sigset_t, align 8
  %old = alloca %struct.__sigset_t, align 8
  call void @llvm.lifetime.start.p0(ptr %all)
  call void @llvm.lifetime.start.p0(ptr %old)
  %call = call i32 @sigfillset(ptr %all)
  %call1 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  %workers = getelementptr inbounds nuw i8, ptr %pool, i64 256
  %cmp16 = icmp sgt i32 %threads, 1
  br i1 %cmp16, label %for.body.preheader, label %for.end
for.body.preheader:
  %wide.trip.count = zext nneg i32 %threads to i64
  br label %for.body
for.body:
  %indvars.iv = phi i64 [ 1, %for.body.preheader ], [ %indvars.iv.next, %for.inc ]
  %arrayidx = getelementptr inbounds nuw %struct.worker, ptr %workers, i64 %indvars.iv
  store ptr %pool, ptr %arrayidx, align 64
  %index = getelementptr inbounds nuw i8, ptr %arrayidx, i64 16
  %0 = trunc nuw nsw i64 %indvars.iv to i32
  store i32 %0, ptr %index, align 16
  %thread = getelementptr inbounds nuw i8, ptr %arrayidx, i64 8
  %call3 = call i32 @pthread_create(ptr %thread, ptr null, ptr @work, ptr %arrayidx)
  %tobool.not = icmp eq i32 %call3, 0
  br i1 %tobool.not, label %for.inc, label %for.end
for.inc:
  %indvars.iv.next = add nuw nsw i64 %indvars.iv, 1
  %exitcond.not = icmp eq i64 %indvars.iv.next, %wide.trip.count
  br i1 %exitcond.not, label %for.end, label %for.body
for.end:
  %started.0.lcssa = phi i32 [ 1, %entry ], [ %0, %for.body ], [ %threads, %for.inc ]
  %call4 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  call void @llvm.lifetime.end.p0(ptr %old)
  call void @llvm.lifetime.end.p0(ptr %all)
  ret i32 %started.0.lcssa
}

define void @mcc_pool_destroy(ptr %pool) {
entry:
  %bytes = getelementptr inbounds nuw i8, ptr %pool, i64 8
  %0 = load i64, ptr %bytes, align 8
  %tobool.not = icmp eq i64 %0, 0
  br i1 %tobool.not, label %return, label %while.cond.preheader
while.cond.preheader:
  %busy = getelementptr inbounds nuw i8, ptr %pool, i64 64
  %1 = atomicrmw xchg ptr %busy, i32 1 acquire, align 64
  %tobool1.not14 = icmp eq i32 %1, 0
  br i1 %tobool1.not14, label %while.end, label %while.body
while.body:
  %call = call i32 @sched_yield()
  %2 = atomicrmw xchg ptr %busy, i32 1 acquire, align 64
  %tobool1.not = icmp eq i32 %2, 0
  br i1 %tobool1.not, label %while.end, label %while.body
while.end:
  %call2 = call i64 @publish(ptr %pool, i32 -1)
  %3 = load i32, ptr %pool, align 64
  %cmp15 = icmp sgt i32 %3, 1
  br i1 %cmp15, label %for.body, label %for.cond.cleanup
for.cond.cleanup:
  %4 = load i64, ptr %bytes, align 8
  %call5 = call i32 @munmap(ptr %pool, i64 %4)
  br label %return
for.body:
  %indvars.iv = phi i64 [ %indvars.iv.next, %for.body ], [ 1, %while.end ]
  %arrayidx = getelementptr inbounds nuw %struct.worker, ptr %pool, i64 %indvars.iv
  %thread = getelementptr inbounds nuw i8, ptr %arrayidx, i64 264
  %5 = load i64, ptr %thread, align 8
  %call3 = call i32 @pthread_join(i64 %5, ptr null)
  %indvars.iv.next = add nuw nsw i64 %indvars.iv, 1
  %6 = load i32, ptr %pool, align 64
  %7 = sext i32 %6 to i64
  %cmp = icmp slt i64 %indvars.iv.next, %7
  br i1 %cmp, label %for.body, label %for.cond.cleanup
return:
  ret void
}

define internal i32 @claim(ptr %worker, i64 %ticket) {
entry:
  %claim = getelementptr inbounds nuw i8, ptr %worker, i64 64
  %0 = load atomic i64, ptr %claim monotonic, align 64
  %cmp = icmp eq i64 %0, %ticket
  br i1 %cmp, label %land.rhs, label %land.end
land.rhs:
  %1 = cmpxchg ptr %claim, i64 %ticket, i64 0 seq_cst seq_cst, align 64
  %2 = extractvalue { i64, i1 } %1, 1
  %3 = zext i1 %2 to i32
  br label %land.end
land.end:
  %land.ext = phi i32 [ 0, %entry ], [ %3, %land.rhs ]
  ret i32 %land.ext
}

define internal ptr @work(ptr %argument) {
entry:
  %allowed = alloca %struct.cpu_set_t, align 8
  %0 = load ptr, ptr %argument, align 64
  call void @llvm.lifetime.start.p0(ptr %allowed)
  call void @llvm.memset.p0.i64(ptr align 8 %allowed, i8 0, i64 128, i1 false)
  %call = call i32 @sched_getaffinity(i32 0, i64 128, ptr %allowed)
  %call236 = call i64 @next_ticket(ptr %0, i64 0)
  %shr37 = lshr i64 %call236, 32
  %cmp39 = icmp eq i64 %shr37, 4294967295
  br i1 %cmp39, label %cleanup19, label %if.end.lr.ph
if.end.lr.ph:
  %index = getelementptr inbounds nuw i8, ptr %argument, i64 16
  %pending = getelementptr inbounds nuw i8, ptr %0, i64 192
  %waiting = getelementptr inbounds nuw i8, ptr %0, i64 196
  br label %if.end
if.end:
  %conv41.in = phi i64 [ %shr37, %if.end.lr.ph ], [ %shr, %cleanup ]
  %call240 = phi i64 [ %call236, %if.end.lr.ph ], [ %call2, %cleanup ]
  %conv41 = trunc nuw i64 %conv41.in to i32
  %1 = load i32, ptr %index, align 16
  %cmp4.not = icmp slt i32 %1, %conv41
  br i1 %cmp4.not, label %if.end7, label %cleanup
if.end7:
  %call8 = call i32 @claim(ptr %argument, i64 %call240)
  %tobool.not = icmp eq i32 %call8, 0
  br i1 %tobool.not, label %if.then9, label %if.end10
if.then9:
  call void @make_way(ptr %0, ptr %allowed)
  br label %cleanup
if.end10:
  %2 = load i32, ptr %index, align 16
  call void @run_piece(ptr %0, i32 %2, i32 %conv41)
  %3 = atomicrmw sub ptr %pending, i32 1 seq_cst, align 64
  %cmp12 = icmp eq i32 %3, 1
  br i1 %cmp12, label %land.lhs.true, label %cleanup
land.lhs.true:
  %4 = load atomic i32, ptr %waiting seq_cst, align 4
  %tobool15.not = icmp eq i32 %4, 0
  br i1 %tobool15.not, label %cleanup, label %if.then16
if.then16:
  call void @futex_wake(ptr %pending)
  br label %cleanup
cleanup:
  %call2 = call i64 @next_ticket(ptr %0, i64 %call240)
  %shr = lshr i64 %call2, 32
  %cmp = icmp eq i64 %shr, 4294967295
  br i1 %cmp, label %cleanup19, label %if.end
cleanup19:
  call void @llvm.lifetime.end.p0(ptr %allowed)
  ret ptr null
}

define internal i64 @next_ticket(ptr %pool, i64 %last) {
entry:
  %ticket1 = getelementptr inbounds nuw i8, ptr %pool, i64 128
  br label %for.body
for.body:
  %i.024 = phi i32 [ 0, %entry ], [ %inc, %if.end ]
  %0 = load atomic i64, ptr %ticket1 acquire, align 64
  %cmp2.not = icmp eq i64 %0, %last
  br i1 %cmp2.not, label %if.end, label %cleanup11
if.end:
  call void @relax()
  %inc = add nuw nsw i32 %i.024, 1
  %exitcond = icmp eq i32 %inc, 16384
  br i1 %exitcond, label %for.end, label %for.body
for.end:
  %sleepers = getelementptr inbounds nuw i8, ptr %pool, i64 136
  %1 = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 8
  %2 = load atomic i64, ptr %ticket1 seq_cst, align 64
  %cmp625 = icmp eq i64 %2, %last
  br i1 %cmp625, label %while.body.lr.ph, label %while.end
while.body.lr.ph:
  %conv = trunc i64 %last to i32
  br label %while.body
while.body:
  call void @futex_wait(ptr %ticket1, i32 %conv)
  %3 = load atomic i64, ptr %ticket1 seq_cst, align 64
  %cmp6 = icmp eq i64 %3, %last
  br i1 %cmp6, label %while.body, label %while.end
while.end:
  %.lcssa = phi i64 [ %2, %for.end ], [ %3, %while.body ]
  %4 = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 8
  br label %cleanup11
cleanup11:
  %retval.1 = phi i64 [ %.lcssa, %while.end ], [ %0, %for.body ]
  ret i64 %retval.1
}

define internal void @make_way(ptr %pool, ptr %allowed) {
entry:
  %others = alloca %struct.cpu_set_t, align 8
  %home1 = getelementptr inbounds nuw i8, ptr %pool, i64 200
  %0 = load atomic i32, ptr %home1 monotonic, align 8
  %call = call i32 @sched_getcpu()
  %cmp = icmp ne i32 %call, %0
  %cmp2 = icmp ugt i32 %call, 1023
  %or.cond = or i1 %cmp, %cmp2
  br i1 %or.cond, label %cleanup, label %if.end
if.end:
  call void @llvm.lifetime.start.p0(ptr %others)
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %others, ptr align 8 %allowed, i64 128, i1 false)
  %conv = zext nneg i32 %0 to i64
  %rem = and i64 %conv, 63
  %shl = shl nuw i64 1, %rem
  %not = xor i64 %shl, -1
  %div512 = lshr i64 %conv, 6
  %arrayidx = getelementptr inbounds nuw i64, ptr %others, i64 %div512
  %1 = load i64, ptr %arrayidx, align 8
  %and = and i64 %1, %not
  store i64 %and, ptr %arrayidx, align 8
  %call6 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %others)
  call void @llvm.lifetime.end.p0(ptr %others)
  br label %cleanup
cleanup:
  ret void
}
