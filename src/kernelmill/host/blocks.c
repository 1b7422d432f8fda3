/* Pooled host memory: blocks that wait for reuse after they were freed. No Python lives here.
 *
 * Fresh pages cost more than the kernel that fills them. Freed blocks wait in one table, oldest
 * first, for a request of the same size class; blocks of 2 MiB and more ask for huge pages. There
 * is no lock: every caller holds the GIL, which also keeps the table whole across fork.
 */
#define _GNU_SOURCE
#include "blocks.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_CACHED 128
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)

static struct block {
    char *at;
    size_t size;
} cached[MAX_CACHED];
static int n_cached;
static struct km_block_stats stats = {0, 0, (size_t)1 << 30};

/* Eight classes to a power of two: at most an eighth is wasted. */
size_t km_block_size(size_t bytes) {
    size_t step = PAGE;
    if (bytes > SIZE_MAX / 4) return 0;
    while (step * 16 <= bytes) step *= 2;
    return bytes ? (bytes + step - 1) / step * step : PAGE;
}

/* Take entry i out of the table. */
static char *unlist(int i) {
    char *p = cached[i].at;
    stats.cached -= cached[i].size;
    n_cached--;
    memmove(&cached[i], &cached[i + 1], (size_t)(n_cached - i) * sizeof cached[0]);
    return p;
}

static void shrink_cache(size_t limit, int count) {
    while (n_cached && (stats.cached > limit || n_cached > count)) {
        size_t size = cached[0].size;
        munmap(unlist(0), size);
    }
}

static char *map_block(size_t size) {
    size_t extra = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *p = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (extra) { /* cut down to a huge-page boundary */
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) munmap(p, head);
        if (extra - head) munmap(p + head + size, extra - head);
        p += head;
        madvise(p, size, MADV_HUGEPAGE);
    }
    return p;
}

char *km_block_take(size_t size) {
    char *p = NULL;
    for (int i = n_cached - 1; i >= 0 && !p; i--)
        if (cached[i].size == size) p = unlist(i);
    if (!p && !(p = map_block(size))) {
        shrink_cache(0, 0);
        p = map_block(size);
    }
    if (p) stats.used += size;
    return p;
}

void km_block_give(char *p, size_t size) {
    stats.used -= size;
    if (size > stats.limit) {
        munmap(p, size);
        return;
    }
    shrink_cache(stats.limit - size, MAX_CACHED - 1);
    cached[n_cached++] = (struct block){p, size};
    stats.cached += size;
}

void km_block_set_limit(size_t limit) {
    stats.limit = limit;
    shrink_cache(limit, MAX_CACHED);
}

const struct km_block_stats *km_block_stats(void) { return &stats; }
