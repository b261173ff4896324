; The thread pool of pool.h: the same program as pool.c, line by line, for machines without a C
; compiler. Linux only, 64 bit, little endian. It is compiled together with pool_<architecture>.ll,
; which defines @relax (a hint that this is a spin loop) and @futex_number (of the system call).

%mcc_pool = type {
  i32,          ; 0  threads, the caller's among them; 0 in a forked child
  i64,          ; 1  bytes mapped
  [48 x i8],
  i32,          ; 3  busy
  [60 x i8],
  i64,          ; 5  ticket: low half number, a futex; high half threads
  i32,          ; 6  sleepers
  ptr,          ; 7  body
  ptr,          ; 8  ctx
  i64,          ; 9  extent
  i64,          ; 10 grain
  [16 x i8],
  i32,          ; 12 pending: workers' pieces that have not ended yet, a futex
  i32,          ; 13 waiting
  i32,          ; 14 home: the core of a caller that has not met all workers
  [52 x i8],
  [0 x %worker] ; 16 one for each thread; that of the caller, the first, is not used
}

%worker = type {
  ptr,          ; 0  pool
  i64,          ; 1  thread, a pthread_t
  i32,          ; 2  index
  [44 x i8],
  i64,          ; 4  claim: ticket of a job whose piece is free, else 0
  [56 x i8]
}

declare i64 @syscall(i64, ...)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

; FUTEX_WAIT_PRIVATE is 128, FUTEX_WAKE_PRIVATE is 129.

define internal void @futex_wait(ptr %word, i32 %value) {
  %number = load i64, ptr @futex_number
  call i64 (i64, ...) @syscall(i64 %number, ptr %word, i32 128, i32 %value, ptr null)
  ret void
}

define internal void @futex_wake(ptr %word) {
  %number = load i64, ptr @futex_number
  call i64 (i64, ...) @syscall(i64 %number, ptr %word, i32 129, i32 2147483647)
  ret void
}

; The ticket that follows %last: spin for it, then sleep.
define internal i64 @next_ticket(ptr %pool, i64 %last) {
entry:
  %ticket.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 5
  %sleepers = getelementptr %mcc_pool, ptr %pool, i32 0, i32 6
  br label %spin

spin:
  %i = phi i32 [ 0, %entry ], [ %i.next, %again ]
  %seen = load atomic i64, ptr %ticket.at acquire, align 64
  %changed = icmp ne i64 %seen, %last
  br i1 %changed, label %found, label %again

again:
  call void @relax()
  %i.next = add i32 %i, 1
  %patient = icmp ult i32 %i.next, 16384
  br i1 %patient, label %spin, label %sleep

found:
  ret i64 %seen

sleep:
  %number = trunc i64 %last to i32
  atomicrmw add ptr %sleepers, i32 1 seq_cst, align 8
  br label %check

check:
  %ticket = load atomic i64, ptr %ticket.at seq_cst, align 64
  %same = icmp eq i64 %ticket, %last
  br i1 %same, label %wait, label %awake

wait:
  call void @futex_wait(ptr %ticket.at, i32 %number)
  br label %check

awake:
  atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 8
  ret i64 %ticket
}

define internal i64 @publish(ptr %pool, i32 %threads) {
entry:
  %ticket.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 5
  %sleepers.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 6
  %last = load atomic i64, ptr %ticket.at monotonic, align 64
  %last.number = trunc i64 %last to i32
  %number = add i32 %last.number, 1
  %low = zext i32 %number to i64
  %wide = zext i32 %threads to i64
  %high = shl i64 %wide, 32
  %ticket = or disjoint i64 %high, %low
  br label %next

next:
  %i = phi i32 [ 1, %entry ], [ %i.next, %offer ]
  %more = icmp slt i32 %i, %threads
  br i1 %more, label %offer, label %announce

offer:
  %slot = sext i32 %i to i64
  %claim = getelementptr %mcc_pool, ptr %pool, i32 0, i32 16, i64 %slot, i32 4
  store atomic i64 %ticket, ptr %claim monotonic, align 64
  %i.next = add i32 %i, 1
  br label %next

announce:
  store atomic i64 %ticket, ptr %ticket.at seq_cst, align 64
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 8
  %nobody = icmp eq i32 %sleepers, 0
  br i1 %nobody, label %done, label %wake

wake:
  call void @futex_wake(ptr %ticket.at)
  br label %done

done:
  ret i64 %ticket
}

define internal i1 @claim(ptr %worker, i64 %ticket) {
entry:
  %claim.at = getelementptr %worker, ptr %worker, i32 0, i32 4
  %claim = load atomic i64, ptr %claim.at monotonic, align 64
  %free = icmp eq i64 %claim, %ticket
  br i1 %free, label %try, label %done

try:
  %exchange = cmpxchg ptr %claim.at, i64 %ticket, i64 0 seq_cst seq_cst, align 64
  %taken = extractvalue { i64, i1 } %exchange, 1
  br label %done

done:
  %mine = phi i1 [ false, %entry ], [ %taken, %try ]
  ret i1 %mine
}

define internal void @run_piece(ptr %pool, i32 %index, i32 %threads) {
  %body.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 7
  %ctx.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 8
  %extent.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 9
  %grain.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 10
  %body = load ptr, ptr %body.at
  %ctx = load ptr, ptr %ctx.at
  %extent = load i64, ptr %extent.at
  %grain = load i64, ptr %grain.at

  %extent.last = sub i64 %extent, 1
  %units.last = sdiv i64 %extent.last, %grain
  %units = add i64 %units.last, 1
  %n = sext i32 %threads to i64
  %this = sext i32 %index to i64
  %next = add i64 %this, 1

  %begin.scaled = mul i64 %units, %this
  %begin.unit = sdiv i64 %begin.scaled, %n
  %begin = mul i64 %begin.unit, %grain
  %end.scaled = mul i64 %units, %next
  %end.unit = sdiv i64 %end.scaled, %n
  %end.whole = mul i64 %end.unit, %grain
  %end = call i64 @llvm.smin.i64(i64 %end.whole, i64 %extent)
  call void %body(ptr %ctx, i64 %begin, i64 %end, i32 %index)
  ret void
}

; Leaves the caller's core to the caller, if the thread may use any other. A cpu_set_t has 128 bytes.
define internal void @make_way(ptr %pool, ptr %allowed) {
  %others = alloca [128 x i8], align 16
  %home.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 14
  %home = load atomic i32, ptr %home.at monotonic, align 8
  %core = call i32 @sched_getcpu()
  %shared = icmp eq i32 %core, %home
  %known = icmp ult i32 %core, 1024
  %there = and i1 %shared, %known
  br i1 %there, label %leave, label %done

leave:
  call void @llvm.memcpy.p0.p0.i64(ptr %others, ptr %allowed, i64 128, i1 false)
  %byte = lshr i32 %core, 3
  %bit = and i32 %core, 7
  %bits.at = getelementptr i8, ptr %others, i32 %byte
  %bits = load i8, ptr %bits.at
  %narrow = trunc i32 %bit to i8
  %own = shl i8 1, %narrow
  %kept = xor i8 %own, -1
  %rest = and i8 %bits, %kept
  store i8 %rest, ptr %bits.at
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %others)
  br label %done

done:
  ret void
}

; Main function of a worker thread.
define internal ptr @work(ptr %worker) {
entry:
  %allowed = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %allowed, i8 0, i64 128, i1 false)
  call i32 @sched_getaffinity(i32 0, i64 128, ptr %allowed)
  %pool.at = getelementptr %worker, ptr %worker, i32 0, i32 0
  %index.at = getelementptr %worker, ptr %worker, i32 0, i32 2
  %pool = load ptr, ptr %pool.at
  %index = load i32, ptr %index.at
  %pending = getelementptr %mcc_pool, ptr %pool, i32 0, i32 12
  %waiting.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 13
  br label %next

next:
  %last = phi i64 [ 0, %entry ], [ %ticket, %awake ], [ %ticket, %late ],
                  [ %ticket, %joined ], [ %ticket, %run ], [ %ticket, %wake ]
  %ticket = call i64 @next_ticket(ptr %pool, i64 %last)
  %high = ashr i64 %ticket, 32
  %threads = trunc i64 %high to i32
  %stop = icmp eq i32 %threads, -1
  br i1 %stop, label %end, label %awake

awake:
  %wanted = icmp slt i32 %index, %threads
  br i1 %wanted, label %invited, label %next

invited:
  %mine = call i1 @claim(ptr %worker, i64 %ticket)
  br i1 %mine, label %run, label %late

late:
  call void @make_way(ptr %pool, ptr %allowed)
  br label %next

run:
  call void @run_piece(ptr %pool, i32 %index, i32 %threads)
  %before = atomicrmw sub ptr %pending, i32 1 seq_cst, align 64
  %all = icmp eq i32 %before, 1
  br i1 %all, label %joined, label %next

joined:
  %waiting = load atomic i32, ptr %waiting.at seq_cst, align 4
  %sleeps = icmp ne i32 %waiting, 0
  br i1 %sleeps, label %wake, label %next

wake:
  call void @futex_wake(ptr %pending)
  br label %next

end:
  ret ptr null
}

; Runs the pieces of workers that have not come.
define internal void @run_rest(ptr %pool, i64 %ticket, i32 %threads) {
entry:
  %home.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 14
  %pending.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 12
  br label %next

next:
  %i = phi i32 [ 1, %entry ], [ %i.next, %look ], [ %i.next, %run ]
  %more = icmp slt i32 %i, %threads
  br i1 %more, label %check, label %done

check:
  %pending = load atomic i32, ptr %pending.at acquire, align 64
  %none = icmp eq i32 %pending, 0
  br i1 %none, label %done, label %look

look:
  %slot = sext i32 %i to i64
  %worker = getelementptr %mcc_pool, ptr %pool, i32 0, i32 16, i64 %slot
  %i.next = add i32 %i, 1
  %mine = call i1 @claim(ptr %worker, i64 %ticket)
  br i1 %mine, label %run, label %next

run:
  %core = call i32 @sched_getcpu()
  store atomic i32 %core, ptr %home.at monotonic, align 8
  call void @run_piece(ptr %pool, i32 %i, i32 %threads)
  atomicrmw sub ptr %pending.at, i32 1 seq_cst, align 64
  br label %next

done:
  ret void
}

define internal void @wait_for_workers(ptr %pool) {
entry:
  %pending.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 12
  %waiting = getelementptr %mcc_pool, ptr %pool, i32 0, i32 13
  br label %spin

spin:
  %i = phi i32 [ 0, %entry ], [ %i.next, %again ]
  %left = load atomic i32, ptr %pending.at acquire, align 64
  %none = icmp eq i32 %left, 0
  br i1 %none, label %done, label %again

again:
  call void @relax()
  %i.next = add i32 %i, 1
  %patient = icmp ult i32 %i.next, 16384
  br i1 %patient, label %spin, label %sleep

sleep:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  br label %check

check:
  %pending = load atomic i32, ptr %pending.at seq_cst, align 64
  %some = icmp ne i32 %pending, 0
  br i1 %some, label %wait, label %awake

wait:
  call void @futex_wait(ptr %pending.at, i32 %pending)
  br label %check

awake:
  store atomic i32 0, ptr %waiting monotonic, align 4
  br label %done

done:
  ret void
}

define void @mcc_parallel_for(ptr %pool, ptr %body, ptr %ctx, i64 %extent, i64 %grain.asked) {
  %nothing = icmp sle i64 %extent, 0
  br i1 %nothing, label %done, label %divide

divide:
  %grain = call i64 @llvm.smax.i64(i64 %grain.asked, i64 1)
  %extent.last = sub i64 %extent, 1
  %units.last = sdiv i64 %extent.last, %grain
  %units = add i64 %units.last, 1
  %available.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 0
  %available = load i32, ptr %available.at
  %available.wide = sext i32 %available to i64
  %threads.wide = call i64 @llvm.smin.i64(i64 %units, i64 %available.wide)
  %threads = trunc i64 %threads.wide to i32
  %single = icmp sle i32 %threads, 1
  br i1 %single, label %serial, label %acquire

acquire:
  %busy.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 3
  %busy = atomicrmw xchg ptr %busy.at, i32 1 acquire, align 64
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %fork, label %serial

serial:
  call void %body(ptr %ctx, i64 0, i64 %extent, i32 0)
  br label %done

fork:
  %body.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 7
  %ctx.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 8
  %extent.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 9
  %grain.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 10
  %pending = getelementptr %mcc_pool, ptr %pool, i32 0, i32 12
  store ptr %body, ptr %body.at
  store ptr %ctx, ptr %ctx.at
  store i64 %extent, ptr %extent.at
  store i64 %grain, ptr %grain.at
  %workers = sub i32 %threads, 1
  store atomic i32 %workers, ptr %pending monotonic, align 64
  %ticket = call i64 @publish(ptr %pool, i32 %threads)
  call void @run_piece(ptr %pool, i32 0, i32 %threads)
  call void @run_rest(ptr %pool, i64 %ticket, i32 %threads)
  call void @wait_for_workers(ptr %pool)
  store atomic i32 0, ptr %busy.at release, align 64
  br label %done

done:
  ret void
}

; Number of threads that there are then, the caller's among them. Workers run with all signals
; blocked: signals are the program's business. A sigset_t has 128 bytes, SIG_SETMASK is 2.
define internal i32 @start_workers(ptr %pool, i32 %threads) {
entry:
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %next

next:
  %started = phi i32 [ 1, %entry ], [ %started.next, %ready ]
  %more = icmp slt i32 %started, %threads
  br i1 %more, label %start, label %done

start:
  %slot = sext i32 %started to i64
  %worker = getelementptr %mcc_pool, ptr %pool, i32 0, i32 16, i64 %slot
  %pool.at = getelementptr %worker, ptr %worker, i32 0, i32 0
  %thread = getelementptr %worker, ptr %worker, i32 0, i32 1
  %index.at = getelementptr %worker, ptr %worker, i32 0, i32 2
  store ptr %pool, ptr %pool.at
  store i32 %started, ptr %index.at
  %refused = call i32 @pthread_create(ptr %thread, ptr null, ptr @work, ptr %worker)
  %good = icmp eq i32 %refused, 0
  br i1 %good, label %ready, label %done

ready:
  %started.next = add i32 %started, 1
  br label %next

done:
  call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret i32 %started
}

; PROT_READ | PROT_WRITE is 3, MAP_PRIVATE | MAP_ANONYMOUS is 34, MADV_WIPEONFORK is 18.
define ptr @mcc_pool_create(i32 %threads.asked) {
  %threads = call i32 @llvm.smax.i32(i32 %threads.asked, i32 1)
  %count = sext i32 %threads to i64
  %size.at = getelementptr %mcc_pool, ptr null, i32 0, i32 16, i64 %count
  %size = ptrtoint ptr %size.at to i64
  %padded = add i64 %size, 4095
  %bytes = and i64 %padded, -4096
  %pool = call ptr @mmap(ptr null, i64 %bytes, i32 3, i32 34, i32 -1, i64 0)
  %address = ptrtoint ptr %pool to i64
  %full = icmp eq i64 %address, -1
  br i1 %full, label %refused, label %advise

advise:
  %kept = call i32 @madvise(ptr %pool, i64 %bytes, i32 18)
  %wiped = icmp eq i32 %kept, 0
  br i1 %wiped, label %start, label %unmap

unmap:
  call i32 @munmap(ptr %pool, i64 %bytes)
  br label %refused

start:
  %bytes.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 1
  %threads.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 0
  store i64 %bytes, ptr %bytes.at
  %started = call i32 @start_workers(ptr %pool, i32 %threads)
  store i32 %started, ptr %threads.at
  %complete = icmp eq i32 %started, %threads
  br i1 %complete, label %done, label %destroy

destroy:
  call void @mcc_pool_destroy(ptr %pool)
  br label %refused

refused:
  ret ptr null

done:
  ret ptr %pool
}

define void @mcc_pool_destroy(ptr %pool) {
entry:
  %bytes.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 1
  %bytes = load i64, ptr %bytes.at
  %child = icmp eq i64 %bytes, 0 ; in a forked child: the pages may serve other uses by now
  br i1 %child, label %done, label %acquire

acquire:
  %busy.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 3
  %busy = atomicrmw xchg ptr %busy.at, i32 1 acquire, align 64
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %stop, label %yield

yield:
  call i32 @sched_yield()
  br label %acquire

stop:
  %threads.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 0
  %threads = load i32, ptr %threads.at
  call i64 @publish(ptr %pool, i32 -1)
  br label %next

next:
  %i = phi i32 [ 1, %stop ], [ %i.next, %join ]
  %more = icmp slt i32 %i, %threads
  br i1 %more, label %join, label %unmap

join:
  %slot = sext i32 %i to i64
  %thread.at = getelementptr %mcc_pool, ptr %pool, i32 0, i32 16, i64 %slot, i32 1
  %thread = load i64, ptr %thread.at
  call i32 @pthread_join(i64 %thread, ptr null)
  %i.next = add i32 %i, 1
  br label %next

unmap:
  call i32 @munmap(ptr %pool, i64 %bytes)
  br label %done

done:
  ret void
}
