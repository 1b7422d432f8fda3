/* Thread pool of the CPU back end: parallel regions of tasks on threads that spin, then sleep.
 * No kernels and no memory live here. C11, Linux; `cc -O2 -shared -fPIC -pthread pool.c` builds it.
 *
 * A region is a door. The caller writes the job, opens the door, works itself, closes the door when
 * no task is left, and waits only for the threads that came in. A worker that wakes late finds the
 * door closed and costs nothing, so correctness never depends on who wakes up. Each participant
 * owns one contiguous range of tasks and takes shrinking pieces of it, then of the others' ranges:
 * contiguous as long as it can be, balanced at the end.
 */
#define _GNU_SOURCE
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE 64
#define MASK_CPUS 8192
#define MASK_WORDS (MASK_CPUS / (8 * sizeof(unsigned long)))
#define AFFINITY_CHECK_NS 10000000LL /* how stale the affinity mask may be */

/* The door word: generation (32 bits) | open | quit | limit (15 bits) | entered (15 bits). */
#define DOOR_OPEN (1ULL << 31)
#define DOOR_QUIT (1ULL << 30)
#define DOOR_ENTERED(d) ((uint32_t)((d) & 0x7fff))
#define DOOR_LIMIT(d) ((uint32_t)((d) >> 15 & 0x7fff))
#define DOOR_GENERATION(d) ((uint32_t)((d) >> 32))

struct range {
    _Alignas(LINE) _Atomic int64_t next;
    int64_t end;
};

/* What a waiting worker polls, with the job beside it: one cache line travels for a region. */
static struct {
    _Alignas(LINE) _Atomic uint64_t door;
    _Atomic uint32_t bell; /* futex word, rung once a region */
    int threads;           /* number of ranges */
    km_task task;
    void *ctx;
} region;
static struct {
    _Alignas(LINE) _Atomic uint32_t count; /* workers that left; the caller's futex word */
} exited;
static struct {
    _Alignas(LINE) _Atomic uint32_t count; /* workers in or near the futex call */
    _Atomic uint32_t joining;              /* the caller sleeps on `exited` */
} sleepers;
static struct range ranges[KM_POOL_MAX_THREADS];

static _Atomic int busy;    /* a region is open, or the pool is being changed */
static _Atomic int threads; /* as set; 0 before the first start */
static _Atomic int64_t spin_ns; /* 0 while there are more threads than CPUs */
static _Thread_local int inside; /* this thread runs tasks: nested regions stay in it */

/* The rest is touched by the holder of `busy` only. */
static int automatic = 1; /* the number of threads came from the affinity mask */
static int spawned, spawn_failed;
static int64_t spin_asked_ns = 1000LL * KM_POOL_SPIN_US;
static pthread_t handles[KM_POOL_MAX_THREADS];
static int home[KM_POOL_MAX_THREADS]; /* the CPU of each pinned worker */
static struct {
    unsigned long mask[MASK_WORDS];
    int cpus; /* in the mask; 0 = unknown */
    int pinned;
    int free_cpu; /* the CPU without a worker, where the caller belongs */
    int64_t checked_ns, moved_ns;
    const void *caller;
} place;

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* ---- tasks ----------------------------------------------------------------------------- */

static int take(struct range *r, int64_t *begin, int64_t *end) {
    int64_t at = atomic_load_explicit(&r->next, memory_order_relaxed);
    while (at < r->end) {
        int64_t step = (r->end - at) / 8;
        step = step < 1 ? 1 : step;
        if (atomic_compare_exchange_weak_explicit(&r->next, &at, at + step, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            *begin = at;
            *end = at + step;
            return 1;
        }
    }
    return 0;
}

static void work(int worker) {
    int n = region.threads;
    km_task task = region.task;
    void *ctx = region.ctx;
    for (int k = 0; k < n; k++) {
        int64_t begin, end;
        struct range *r = &ranges[worker + k < n ? worker + k : worker + k - n];
        while (take(r, &begin, &end)) task(ctx, begin, end, worker);
    }
}

/* Take a place in the open region; 0 when it is closed, full, or was already worked on. */
static int enter(uint32_t *seen) {
    uint64_t d = atomic_load_explicit(&region.door, memory_order_acquire);
    while ((d & DOOR_OPEN) && DOOR_GENERATION(d) != *seen && DOOR_ENTERED(d) < DOOR_LIMIT(d)) {
        if (atomic_compare_exchange_weak_explicit(&region.door, &d, d + 1, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            *seen = DOOR_GENERATION(d);
            return (int)DOOR_ENTERED(d) + 1;
        }
    }
    return 0;
}

static void leave(void) {
    atomic_fetch_add(&exited.count, 1);
    if (atomic_load(&sleepers.joining)) futex_wake(&exited.count, 1);
}

/* Wait for the next ring of the bell: poll for a while, then sleep. */
static void wait_for_bell(uint32_t heard) {
    int64_t limit = atomic_load_explicit(&spin_ns, memory_order_relaxed);
    int64_t until = limit > 0 ? clock_ns(CLOCK_MONOTONIC) + limit : 0;
    while (limit > 0) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&region.bell, memory_order_acquire) != heard) return;
            relax();
        }
        if (clock_ns(CLOCK_MONOTONIC) > until) break;
    }
    atomic_fetch_add(&sleepers.count, 1);
    /* A ring that missed this sleeper has changed the word: then futex_wait returns at once. */
    futex_wait(&region.bell, heard);
    atomic_fetch_sub(&sleepers.count, 1);
}

static void *worker_main(void *unused) {
    uint32_t seen = 0;
    inside = 1;
    for (;;) {
        uint32_t heard = atomic_load(&region.bell); /* read before the door */
        if (atomic_load_explicit(&region.door, memory_order_acquire) & DOOR_QUIT) return unused;
        int worker = enter(&seen);
        if (worker) {
            work(worker);
            leave();
        } else {
            wait_for_bell(heard);
        }
    }
}

static void ring(int n) {
    atomic_fetch_add(&region.bell, 1);
    if (atomic_load(&sleepers.count)) futex_wake(&region.bell, n);
}

/* Wait for those who came in: they hold tasks, so poll first; a long task is slept on. */
static void join_entered(uint32_t entered) {
    for (int i = 0;; i++) {
        uint32_t left = atomic_load_explicit(&exited.count, memory_order_acquire);
        if (left == entered) return;
        if (i < 400) {
            relax();
        } else if (i < 800) {
            sched_yield();
        } else {
            atomic_store(&sleepers.joining, 1);
            left = atomic_load(&exited.count);
            if (left != entered) futex_wait(&exited.count, left);
            atomic_store(&sleepers.joining, 0);
        }
    }
}

/* ---- placement --------------------------------------------------------------------------------
 * Two spinning threads that land on one CPU can stay there for seconds. So when there are as many
 * threads as CPUs in the mask, each worker is pinned to its own, and the worker whose CPU the
 * caller is found on moves to the free one. With fewer threads the scheduler has idle CPUs to
 * choose from, and pinning would stack up the workers of several processes.
 */

static int in_mask(int cpu) {
    const int bits = 8 * sizeof(unsigned long);
    return cpu >= 0 && cpu < MASK_CPUS && (place.mask[cpu / bits] >> (cpu % bits) & 1);
}

static void bind_worker(int w, int cpu) {
    unsigned long one[MASK_WORDS] = {0};
    const int bits = 8 * sizeof(unsigned long);
    home[w] = cpu;
    if (w > spawned) return;
    if (cpu >= 0) {
        one[cpu / bits] = 1UL << (cpu % bits);
        pthread_setaffinity_np(handles[w], sizeof one, (const cpu_set_t *)one);
    } else {
        pthread_setaffinity_np(handles[w], sizeof place.mask, (const cpu_set_t *)place.mask);
    }
}

/* Read the caller's mask; when it changed, place the workers anew. */
static void refresh_mask(int cpu) {
    unsigned long now[MASK_WORDS] = {0};
    int n = atomic_load(&threads), count = 0, next = 0;
    if (sched_getaffinity(0, sizeof now, (cpu_set_t *)now) != 0) return;
    if (place.cpus && memcmp(now, place.mask, sizeof now) == 0) return;
    memcpy(place.mask, now, sizeof now);
    for (size_t i = 0; i < MASK_WORDS; i++) count += __builtin_popcountl(now[i]);
    place.cpus = count;
    place.pinned = count == n;
    place.free_cpu = cpu;
    atomic_store(&spin_ns, n > count ? 0 : spin_asked_ns);
    for (int w = 1; w < n; w++) {
        while (place.pinned && next < MASK_CPUS && (next == cpu || !in_mask(next))) next++;
        bind_worker(w, place.pinned && next < MASK_CPUS ? next++ : -1);
    }
}

static void follow_caller(void) {
    int64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
    int cpu = sched_getcpu();
    if (!place.cpus || place.caller != &inside || now - place.checked_ns >= AFFINITY_CHECK_NS) {
        refresh_mask(cpu);
        place.caller = &inside;
        place.checked_ns = now;
    }
    /* At most one move a clock tick: callers on several CPUs must not chase the workers around. */
    if (!place.pinned || cpu == place.free_cpu || now == place.moved_ns || !in_mask(cpu)) return;
    for (int w = 1; w < atomic_load(&threads); w++) {
        if (home[w] != cpu) continue;
        bind_worker(w, in_mask(place.free_cpu) ? place.free_cpu : -1);
        break;
    }
    place.free_cpu = cpu;
    place.moved_ns = now;
}

/* ---- threads --------------------------------------------------------------------------- */

static void spawn(int n_workers) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    while (spawned < n_workers && !spawn_failed) {
        if (pthread_create(&handles[spawned + 1], NULL, worker_main, NULL) != 0) {
            spawn_failed = 1; /* work on with those that are there */
            break;
        }
        spawned++;
        if (place.pinned && home[spawned] >= 0) bind_worker(spawned, home[spawned]);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void stop_workers(void) {
    uint64_t next = (uint64_t)(DOOR_GENERATION(atomic_load(&region.door)) + 1) << 32;
    if (spawned) {
        atomic_store(&region.door, next | DOOR_QUIT);
        ring(KM_POOL_MAX_THREADS);
        for (int w = 1; w <= spawned; w++) pthread_join(handles[w], NULL);
        atomic_store(&region.door, next);
    }
    spawned = spawn_failed = 0;
}

/* Threads do not survive fork, and another thread's region may be open: the child starts anew. */
static void forget_in_child(void) {
    spawned = spawn_failed = 0;
    place.cpus = 0;
    place.pinned = 0;
    inside = 0;
    atomic_store(&region.door, 0);
    atomic_store(&sleepers.count, 0);
    atomic_store(&sleepers.joining, 0);
    atomic_store(&exited.count, 0);
    atomic_store(&busy, 0);
}

static void register_fork(void) { pthread_atfork(NULL, NULL, forget_in_child); }

static void lock_pool(void) {
    while (atomic_exchange_explicit(&busy, 1, memory_order_acquire)) sched_yield();
}

static void unlock_pool(void) { atomic_store_explicit(&busy, 0, memory_order_release); }

int km_pool_start(int n, int spin_us) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
    if (inside) return atomic_load(&threads);
    lock_pool();
    place.cpus = 0;
    refresh_mask(sched_getcpu());
    automatic = n <= 0;
    n = n > 0 ? n : place.cpus;
    n = n < 1 ? 1 : n > KM_POOL_MAX_THREADS ? KM_POOL_MAX_THREADS : n;
    stop_workers();
    atomic_store(&threads, n);
    place.cpus = 0; /* placed anew, for n threads, by the next region */
    spin_asked_ns = 1000LL * (spin_us < 0 ? KM_POOL_SPIN_US : spin_us);
    unlock_pool();
    return n;
}

int km_pool_threads(void) {
    int n = atomic_load_explicit(&threads, memory_order_relaxed);
    return n ? n : km_pool_start(0, -1);
}

/* ---- regions --------------------------------------------------------------------------- */

static void run_region(int64_t n_tasks, int want, km_task task, void *ctx) {
    uint64_t d = atomic_load_explicit(&region.door, memory_order_relaxed);
    uint64_t next = (uint64_t)(DOOR_GENERATION(d) + 1) << 32;
    int64_t share = n_tasks / want, rest = n_tasks % want, at = 0;
    for (int w = 0; w < want; w++) {
        atomic_store_explicit(&ranges[w].next, at, memory_order_relaxed);
        at += share + (w < rest);
        ranges[w].end = at;
    }
    region.threads = want;
    region.task = task;
    region.ctx = ctx;
    atomic_store_explicit(&exited.count, 0, memory_order_relaxed);
    next |= DOOR_OPEN | (uint64_t)(want - 1) << 15;
    atomic_store_explicit(&region.door, next, memory_order_release);
    ring(want - 1);
    inside = 1;
    work(0);
    inside = 0;
    d = atomic_fetch_and(&region.door, ~DOOR_OPEN);
    join_entered(DOOR_ENTERED(d));
}

void km_parallel_for(int64_t n_tasks, int max_threads, km_task task, void *ctx) {
    if (n_tasks <= 0) return;
    int want = km_pool_threads();
    if (max_threads > 0 && max_threads < want) want = max_threads;
    if (n_tasks < want) want = (int)n_tasks;
    if (want < 2 || inside || atomic_exchange_explicit(&busy, 1, memory_order_acquire)) {
        task(ctx, 0, n_tasks, 0);
        return;
    }
    follow_caller();
    if (automatic && place.cpus && want > place.cpus) want = place.cpus;
    if (spawned < want - 1) spawn(want - 1);
    if (want > spawned + 1) want = spawned + 1;
    if (want < 2) {
        unlock_pool();
        task(ctx, 0, n_tasks, 0);
        return;
    }
    run_region(n_tasks, want, task, ctx);
    unlock_pool();
}

static void nop(void *ctx, int64_t begin, int64_t end, int worker) {
    (void)ctx, (void)begin, (void)end, (void)worker;
}

void km_pool_nop(int64_t n_tasks, int max_threads) {
    km_parallel_for(n_tasks, max_threads, nop, NULL);
}
