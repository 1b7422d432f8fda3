/* What tests/cpu/test_pool.py does to the thread pool from several threads at once. */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MAX_CALLERS 64

enum fault { NONE, BAD_RANGE, WORKER_TWICE, NOT_ONCE };

struct job {
    int64_t n;
    int max_threads, nested;
    unsigned char *hits; /* how often each task ran */
    int *inside;         /* calls that are inside, by worker number */
    enum fault fault;
};

static void mark(void *p, int64_t begin, int64_t end, int worker) {
    unsigned char *hits = p;
    (void)worker;
    for (int64_t i = begin; i < end; i++) hits[i]++;
}

static void task(void *p, int64_t begin, int64_t end, int worker) {
    struct job *j = p;
    if (worker < 0 || worker >= j->max_threads || begin < 0 || end > j->n || begin >= end) {
        __atomic_store_n(&j->fault, BAD_RANGE, __ATOMIC_RELAXED);
        return;
    }
    if (__atomic_fetch_add(&j->inside[worker], 1, __ATOMIC_RELAXED))
        __atomic_store_n(&j->fault, WORKER_TWICE, __ATOMIC_RELAXED);
    if (j->nested)
        km_parallel_for(end - begin, 0, mark, j->hits + begin);
    else
        mark(j->hits, begin, end, worker);
    __atomic_fetch_sub(&j->inside[worker], 1, __ATOMIC_RELAXED);
}

/* Run regions in which every task must run once; returns a fault or NONE. */
API int stress_regions(int64_t n, int max_threads, int nested, int regions) {
    struct job j = {n, max_threads > 0 ? max_threads : KM_POOL_MAX_THREADS, nested, NULL, NULL, 0};
    j.hits = malloc((size_t)n + 1);
    j.inside = calloc(KM_POOL_MAX_THREADS, sizeof(int));
    for (int r = 0; r < regions && !j.fault; r++) {
        memset(j.hits, 0, (size_t)n + 1);
        km_parallel_for(n, max_threads, task, &j);
        for (int64_t i = 0; i < n; i++)
            if (j.hits[i] != 1) j.fault = NOT_ONCE;
        if (j.hits[n]) j.fault = NOT_ONCE;
    }
    free(j.hits);
    free(j.inside);
    return j.fault;
}

struct caller {
    int regions, seed, restarts, fault;
};

static void *call(void *p) {
    struct caller *c = p;
    unsigned s = (unsigned)c->seed;
    for (int i = 0; i < c->regions && !c->fault; i++) {
        int n = rand_r(&s) % 300, max_threads = rand_r(&s) % 6, nested = rand_r(&s) % 4 == 0;
        c->fault = stress_regions(n, max_threads, nested, 1);
        if (rand_r(&s) % 500 == 0) usleep(1500); /* long enough for the workers to sleep */
        if (c->restarts && c->seed % 4 == 1 && rand_r(&s) % 200 == 0)
            km_pool_start(1 + rand_r(&s) % 5, -1);
    }
    return NULL;
}

/* Several threads with regions of random size; some of them restart the pool now and then. */
API int stress_callers(int callers, int regions, int restarts) {
    pthread_t t[MAX_CALLERS];
    struct caller c[MAX_CALLERS];
    int fault = 0;
    for (int i = 0; i < callers; i++) {
        c[i] = (struct caller){regions, i, restarts, 0};
        pthread_create(&t[i], NULL, call, &c[i]);
    }
    for (int i = 0; i < callers; i++) {
        pthread_join(t[i], NULL);
        fault = fault ? fault : c[i].fault;
    }
    return fault;
}

static void wait_us(void *p, int64_t begin, int64_t end, int worker) {
    struct timespec t, u;
    int *workers = p;
    for (int64_t i = begin; i < end; i++) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        do clock_gettime(CLOCK_MONOTONIC, &u);
        while ((u.tv_sec - t.tv_sec) * 1000000 + (u.tv_nsec - t.tv_nsec) / 1000 < 100);
    }
    workers[worker] = 1;
}

/* How many threads took part in a region of n tasks of 100 us. */
API int stress_width(int64_t n, int max_threads) {
    int workers[KM_POOL_MAX_THREADS] = {0}, width = 0;
    km_parallel_for(n, max_threads, wait_us, workers);
    for (int i = 0; i < KM_POOL_MAX_THREADS; i++) width += workers[i];
    return width;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 2000;
    km_pool_start(4, -1);
    int a = stress_regions(100, 0, 0, n), b = stress_regions(33, 3, 1, n);
    int c = stress_callers(6, n, 1);
    printf("%d %d %d\n", a, b, c);
    return a || b || c;
}
