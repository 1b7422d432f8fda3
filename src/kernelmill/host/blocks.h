/* Pooled host memory: its functions. Every caller holds the GIL; the implementation says why. */
#ifndef KM_BLOCKS_H
#define KM_BLOCKS_H

#include <stddef.h>

struct km_block_stats {
    size_t used, cached, limit; /* bytes: handed out, waiting for reuse, the most that may wait */
};

/* The size that is really taken for `bytes`; 0 when that many cannot exist. */
size_t km_block_size(size_t bytes);

/* A block of a size that km_block_size returned, page-aligned and uninitialised; NULL if none. */
char *km_block_take(size_t size);
void km_block_give(char *block, size_t size);

void km_block_set_limit(size_t limit);
const struct km_block_stats *km_block_stats(void);

#endif
